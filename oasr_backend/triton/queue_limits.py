"""How much audio may wait: of one stream, and of all of them. Plain arithmetic, all in seconds."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Bound = Literal["stream", "total"]


@dataclass(frozen=True)
class QueueLimits:
    """Bounds of the audio that has been taken in and not decoded yet.

    Half of the total is set aside in equal shares, one for each stream that may be open, so that those who run far
    ahead fill the other half at most and never stand in the way of a stream in real time.
    """

    stream_seconds: float
    total_seconds: float
    streams: int

    @property
    def share(self) -> float:
        """What a stream may queue whatever the others do."""
        return min(self.stream_seconds, self.total_seconds / (2 * self.streams))

    def broken_by(self, queued: float, others: Iterable[float]) -> Bound | None:
        """The bound that a stream would break with `queued` in all, while the others hold so much each."""
        if queued > self.stream_seconds:
            return "stream"
        if queued <= self.share:
            return None
        in_common = self.total_seconds - self.streams * self.share
        taken = sum(max(0.0, one - self.share) for one in (queued, *others))
        return "total" if taken > in_common else None

    def resumes_at(self, bound: Bound) -> float:
        """What a stream must be down to before it takes audio again.

        Well below the bound, so that of chunks sent without waiting none slips in behind one that was refused.
        """
        return self.stream_seconds / 2 if bound == "stream" else self.share
