"""Who of the streams with a window goes into a step: those in real time always, those that run ahead while it is short.

A stream in real time needs its answer before its next chunk; one whose client has sent minutes in advance only wants
to be through. Without a bound twenty of the second kind would make every step so long that the first fall behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# So few lengthen no step by much.
_LEAST = 4
_GROWTH = 1.25


@dataclass(frozen=True)
class Waiting:
    """A stream with a window: the audio queued behind it in seconds, and the step that last took a window of it."""

    queued_seconds: float
    last_step: int


class Pace:
    """How many streams that run ahead a step takes, learnt from how long steps take."""

    def __init__(self, ahead_seconds: float, target_seconds: float):
        """A stream runs ahead with more than `ahead_seconds` queued; steps are to take `target_seconds` at most."""
        self._ahead_seconds = ahead_seconds
        self._target_seconds = target_seconds
        self._most = float("inf")

    def is_ahead(self, queued_seconds: float) -> bool:
        return queued_seconds > self._ahead_seconds

    def choose(self, streams: Sequence[Waiting]) -> list[int]:
        """Indices of those that go now, ascending; of those ahead the ones that have waited longest."""
        ahead = [index for index, stream in enumerate(streams) if self.is_ahead(stream.queued_seconds)]
        if len(ahead) <= self._most:
            return list(range(len(streams)))
        ahead.sort(key=lambda index: streams[index].last_step)
        held = set(ahead[int(self._most) :])
        return [index for index in range(len(streams)) if index not in held]

    def learn(self, ahead: int, seconds: float) -> None:
        """Takes in how long a step took in which so many streams ahead, one at least, went beside others."""
        if seconds > self._target_seconds:
            self._most = max(_LEAST, min(self._most, ahead) * self._target_seconds / seconds)
        else:
            self._most *= _GROWTH
