"""Slopes of what is measured over time, and how sure they are."""

import numpy as np
import pytest

from benchmarks.trend import trend

X = list(range(300))


def wandering(seed: int, length: int = 300) -> np.ndarray:
    """Noise whose neighbours hang together, with a deviation of about 1."""
    steps = np.random.default_rng(seed).standard_normal(length)
    values = np.zeros(length)
    for index in range(1, length):
        values[index] = 0.7 * values[index - 1] + 0.7 * steps[index]
    return values


@pytest.mark.parametrize("slope", [-0.02, 0.0, 0.02])
def test_the_interval_holds_the_slope_nearly_always(slope: float) -> None:
    held = 0
    for seed in range(100):
        found = trend(X, 50 + slope * np.arange(300) + wandering(seed), seed)
        assert found.low <= found.slope <= found.high
        held += found.low <= slope <= found.high
    # Of 100 with a confidence of 95 %; blocks are a little too sure of series as short as these.
    assert held >= 85


def test_a_leak_is_told_from_noise() -> None:
    noise = wandering(1)
    leak = trend(X, 100 + 0.05 * np.arange(300) + noise, 0)
    assert leak.low > 0
    assert leak.rise == pytest.approx(0.05 * 299, rel=0.1)
    assert not leak.is_flat(0.02)
    assert leak.is_flat(0.2)
    assert not leak.is_flat(0.02, 10.0)
    assert leak.is_flat(0.02, 20.0)
    assert trend(X, 100 + noise, 0).is_flat(0.005)


def test_a_level_series_is_flat() -> None:
    level = trend(X, [7.0] * 300, 0)
    assert (level.slope, level.low, level.high, level.rise) == (0.0, 0.0, 0.0, 0.0)
    assert level.is_flat(0.0)


@pytest.mark.parametrize(
    ("x", "y"), [(X[:15], X[:15]), (X, X[:299]), ([*X[:20], 19], range(21)), (X[::-1], X)], ids=str
)
def test_what_is_no_series_is_refused(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError):
        trend(x, y, 0)
