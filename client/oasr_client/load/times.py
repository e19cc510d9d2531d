"""Durations and what is said of them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Times:
    """Durations, in milliseconds. Of none, every figure is 0."""

    milliseconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def p99(self) -> float:
        return self.percentile(99)

    @property
    def maximum(self) -> float:
        return max(self.milliseconds, default=0.0)

    def percentile(self, share: float) -> float:
        """The duration that `share` per cent do not exceed."""
        return float(np.percentile(self.milliseconds, share)) if self.milliseconds else 0.0

    @classmethod
    def of_seconds(cls, seconds: Iterable[float]) -> "Times":
        return cls(tuple(1000 * one for one in seconds))

    def columns(self) -> dict[str, float]:
        """What a table shows of them."""
        return {"median ms": self.median, "p99 ms": self.p99}
