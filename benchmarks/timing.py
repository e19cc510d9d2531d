"""Durations of arms that take turns."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Times:
    """Durations of one arm, in milliseconds."""

    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def p99(self) -> float:
        return self.percentile(99)

    @property
    def maximum(self) -> float:
        return max(self.milliseconds)

    def percentile(self, share: float) -> float:
        return float(np.percentile(self.milliseconds, share))

    @classmethod
    def of_seconds(cls, seconds: list[float]) -> "Times":
        return cls(tuple(1000 * one for one in seconds))

    def columns(self) -> dict[str, float]:
        """What a table shows of them."""
        return {"median ms": self.median, "p99 ms": self.p99}


@dataclass(frozen=True)
class Turn:
    """What one turn of an arm did: seconds of audio, and those of its calls."""

    audio_s: float
    steps: tuple[float, ...]

    @property
    def times_real_time(self) -> float:
        return self.audio_s / sum(self.steps)


def timed(call: Callable[[], object]) -> Callable[[], float]:
    """`call` as an arm: it gives the seconds that it took."""

    def arm() -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    return arm


def interleaved(arms: Mapping[str, Callable[[], float]], rounds: int, warm_up: int = 2) -> dict[str, Times]:
    """Runs every arm once a round; an arm gives the seconds that count. The first `warm_up` rounds are left out."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(warm_up + rounds):
        for name, arm in arms.items():
            taken = arm()
            if turn >= warm_up:
                seconds[name].append(taken)
    return {name: Times.of_seconds(values) for name, values in seconds.items()}
