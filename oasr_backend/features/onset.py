"""Where speech sets on behind a pause, told by loudness alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# Silence is so far below the loud frames around it, and no further above the quiet ones; digital silence has none.
_SILENCE_DB = 25.0
_FLOOR_DB = 20.0
_DEEP_DB = 45.0
# Steady noise varies by no more.
_NOISE_DB = 6.0


def silence_limit(levels: np.ndarray) -> float:
    """The loudness up to which a frame is silence, given the frames around it, [n] in dB."""
    # Not the extremes: one bang must not turn speech into silence.
    loud, floor = np.percentile(levels, (95, 5))
    return float(min(loud - _SILENCE_DB, max(floor + _FLOOR_DB, loud - _DEEP_DB)))


def noise_limit(levels: np.ndarray) -> float:
    """The loudness up to which a frame is steady noise, given the frames around it, [n] in dB."""
    return float(np.percentile(levels, 10)) + _NOISE_DB


def stretches(levels: np.ndarray, limit: float, min_frames: int) -> list[tuple[int, int]]:
    """Stretches [first, behind the last) of at least `min_frames` frames that are no louder than `limit`."""
    quiet = (levels <= limit).astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], quiet, [0])))).reshape(-1, 2)
    return [(int(first), int(end)) for first, end in edges if end - first >= min_frames]


@dataclass(frozen=True)
class OnsetRule:
    """Silence of `pause_seconds` parts what is said; loudness is judged against the last `memory_seconds`."""

    pause_seconds: float = 0.3
    memory_seconds: float = 10.0
    late_seconds: float = 0.2
    """An onset is still told so much later: only what follows shows that it was loud."""


@dataclass(frozen=True)
class Onset:
    """What is said sets on at frame `place` of those just fed; below 0 in those before them."""

    place: int
    is_clear: bool
    """Whether there was silence before it, and not just noise that was steady."""


class OnsetDetector:
    """Watches one stream, frame by frame."""

    def __init__(self, rule: OnsetRule, seconds_per_frame: float):
        self._pause = max(1, round(rule.pause_seconds / seconds_per_frame))
        self._memory = round(rule.memory_seconds / seconds_per_frame)
        self._late = round(rule.late_seconds / seconds_per_frame)
        self._levels = np.zeros(0)
        self._since = 0
        """Frames behind the last clear onset that was told; one that is not clear may become so."""

    def feed(self, levels: Sequence[float]) -> list[Onset]:
        """Takes frames in, in dB; the places among them at which speech sets on, in order."""
        fresh = len(levels)
        if not fresh:
            return []
        self._levels = np.concatenate((self._levels, levels))[-(self._memory + fresh) :]
        start = len(self._levels) - fresh
        first = start - min(self._late, self._since)
        clear = self._ends(silence_limit(self._levels))
        found = {**dict.fromkeys(self._ends(noise_limit(self._levels)), False), **dict.fromkeys(clear, True)}
        told = sorted(place for place in found if first <= place < len(self._levels))
        last = max((place for place in told if found[place]), default=None)
        self._since = self._since + fresh if last is None else len(self._levels) - last - 1
        return [Onset(place - start, found[place]) for place in told]

    def rewind(self, frames: int) -> None:
        """The last frames come again."""
        self._levels = self._levels[: len(self._levels) - frames]
        self._since = max(0, self._since - frames)

    def _ends(self, limit: float) -> list[int]:
        return [end for _, end in stretches(self._levels, limit, self._pause)]
