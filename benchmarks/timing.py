"""Durations of arms that take turns."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from oasr_client.load.times import Times


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
