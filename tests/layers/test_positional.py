"""Sinusoidal positions."""

import numpy as np
import pytest
import torch

from oasr_backend.layers.positional import SinusoidalPosition
from tests.layers.weights import CPU


@pytest.mark.parametrize("first", [0, 4990, 90_000])
def test_positions_at_any_offset(first: int) -> None:
    """No table ends: 90,000 frames are an hour of speech."""
    dim = 64
    positions = np.arange(first, first + 20)
    angle = positions[:, None] / 10000 ** (np.arange(0, dim, 2) / dim)
    rows = SinusoidalPosition(dim, CPU)(torch.from_numpy(positions)[None])[0].numpy()
    # float32 angles: as exact as their own size allows.
    tolerance = 1e-5 + first * 1.2e-7
    np.testing.assert_allclose(rows[:, 0::2], np.sin(angle), atol=tolerance)
    np.testing.assert_allclose(rows[:, 1::2], np.cos(angle), atol=tolerance)
