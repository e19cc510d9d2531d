"""What a search for the capacity says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oasr_client.load.step import Step
from oasr_client.load.streams import Target


@dataclass(frozen=True)
class CapacityReport:
    """The outcome of a search.

    Attributes:
        target: where the streams went.
        seconds: audio of every stream.
        most: the largest number that the search was allowed to try.
        streams: the largest number that passed, 0 where none did.
        steps: every number that was tried, in that order.
    """

    target: Target
    seconds: float
    most: int
    streams: int
    steps: tuple[Step, ...]

    @property
    def at_capacity(self) -> Step | None:
        """The step of the largest number that passed."""
        return next((step for step in self.steps if step.streams == self.streams), None)

    @property
    def stopped_by(self) -> Step | None:
        """The step of the smallest number that did not pass."""
        failed = [step for step in self.steps if not step.verdict.passes]
        return min(failed, key=lambda step: step.streams, default=None)

    @property
    def is_lost(self) -> bool:
        """Whether the search ended because the server could not be reached any more."""
        return any(step.verdict.kind == "lost" for step in self.steps)

    @property
    def by_streams(self) -> Sequence[Step]:
        """The steps by rising numbers of streams."""
        return sorted(self.steps, key=lambda step: step.streams)

    @property
    def lines(self) -> list[str]:
        """For reading."""
        chunk = f"{self.target.chunk_ms:g} ms"
        stopped = self.stopped_by
        if not self.streams:
            return [f"not one stream passes: {stopped.verdict.sentence}"] if stopped else ["no number was tried"]
        if stopped is None:
            return [f"{self.streams} streams pass with a p99 latency below {chunk}; no larger number was tried (--max)"]
        return [
            f"capacity: {self.streams} streams, the largest number seen with a p99 latency below {chunk}",
            f"what stops it at {stopped.streams}: {stopped.verdict.sentence}",
        ]

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        best = self.at_capacity
        return {
            "server": self.target.url,
            "protocol": self.target.protocol,
            "model_version": self.target.model_version,
            "chunk_ms": self.target.chunk_ms,
            "seconds": self.seconds,
            "options": dict(self.target.options),
            "max": self.most,
            "streams": self.streams,
            "stopped_by": self.stopped_by.document if self.stopped_by else None,
            "steps": [step.document for step in self.steps],
            # 0 to 100 per cent.
            "latency_ms_by_percentile": _distribution(best),
        }


def _distribution(step: Step | None) -> list[float]:
    return [] if step is None else [round(step.run.latency.percentile(at), 2) for at in range(101)]
