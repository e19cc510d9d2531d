"""Sinusoidal positions, computed at any offset."""

import math

import torch
from torch import Tensor


class SinusoidalPosition:
    """pe(t, 2i) = sin(t w_i), pe(t, 2i+1) = cos(t w_i), w_i = 10000^(-2i/dim) (Vaswani et al. 2017).

    Rows are computed, never looked up, so that no stream ends at the length of a table.
    """

    def __init__(self, dim: int, device: torch.device, dtype: torch.dtype):
        self._dtype = dtype
        self._frequency = torch.exp(
            torch.arange(0, dim, 2, dtype=torch.float32, device=device) * -(math.log(10000.0) / dim)
        )

    def __call__(self, positions: Tensor) -> Tensor:
        """`positions` [...] integers -> [..., dim]."""
        angle = positions.to(torch.float32)[..., None] * self._frequency
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2).to(self._dtype)
