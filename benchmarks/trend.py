"""Whether a series of measurements grows: a slope, and how sure it is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_RESAMPLINGS = 2000


@dataclass(frozen=True)
class Trend:
    """A straight line through measurements.

    Attributes:
        slope: by how much it rises for each unit of x.
        low, high: the interval that holds the slope with a confidence of 95 %.
        mean: of the measurements.
        span: of x.
    """

    slope: float
    low: float
    high: float
    mean: float
    span: float

    @property
    def rise(self) -> float:
        """Of the line from its first to its last x."""
        return self.slope * self.span

    def is_flat(self, share: float, amount: float = 0.0) -> bool:
        """Whether it may well be level, or rises by less than a share of its mean, or than an amount, in all."""
        return self.low <= 0 or self.rise < max(share * self.mean, amount)


def trend(x: Sequence[float], y: Sequence[float], seed: int) -> Trend:
    """The least squares line, and its interval by a bootstrap of blocks of residuals.

    What is measured of a server hangs together over seconds, so that single points would say too much: blocks of √n
    neighbours are drawn (Künsch 1989, The Jackknife and the Bootstrap for General Stationary Observations).

    Args:
        x, y: as many each, 16 or more; x grows.
        seed: of the drawing.
    Raises:
        ValueError: there are fewer points, or x does not grow.
    """
    positions, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if len(values) < 16 or len(positions) != len(values):
        raise ValueError(f"a trend needs 16 points or more with an x each, got {len(positions)} and {len(values)}")
    if not np.all(np.diff(positions) > 0):
        raise ValueError("x does not grow")
    centred = positions - positions.mean()
    slope = _slopes(centred, values[None])[0]
    residuals = values - values.mean() - slope * centred
    drawn = _blocks(residuals, np.random.default_rng(seed))
    spread = _slopes(centred, drawn)
    low, high = slope + np.quantile(spread, (0.025, 0.975))
    return Trend(float(slope), float(low), float(high), float(values.mean()), float(np.ptp(positions)))


def _slopes(centred: npt.NDArray[np.float64], rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    slopes: npt.NDArray[np.float64] = rows @ centred / (centred @ centred)
    return slopes


def _blocks(residuals: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """[resamplings, n] made of blocks of neighbours, wherever they begin."""
    count = len(residuals)
    length = round(count**0.5)
    begins = rng.integers(0, count - length + 1, (_RESAMPLINGS, -(-count // length)))
    places = (begins[:, :, None] + np.arange(length)).reshape(_RESAMPLINGS, -1)[:, :count]
    drawn: npt.NDArray[np.float64] = residuals[places]
    return drawn
