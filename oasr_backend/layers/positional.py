"""Sinusoidal and rotary positions, computed at any offset."""

import math

import torch
from torch import Tensor


class SinusoidalPosition:
    """pe(t, 2i) = sin(t w_i), pe(t, 2i+1) = cos(t w_i), w_i = 10000^(-2i/dim) (Vaswani et al. 2017).

    Rows are computed at any position, so that no stream ends at the length of a table.
    """

    def __init__(self, dim: int, device: torch.device):
        self._frequency = torch.exp(
            torch.arange(0, dim, 2, dtype=torch.float32, device=device) * -(math.log(10000.0) / dim)
        )

    def __call__(self, positions: Tensor) -> Tensor:
        """`positions` [...] integers -> [..., dim] float32."""
        angle = positions.to(torch.float32)[..., None] * self._frequency
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)


class RotaryPosition:
    """cos and sin of t w_i, w_i = 10000^(-2i/d), to turn pairs (x_i, x_{i + d/2}) by (Su et al. 2021)."""

    def __init__(self, head_dim: int, device: torch.device):
        exponent = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
        self._frequency = 1.0 / 10000.0**exponent

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """`positions` [...] integers -> cos and sin, each [..., d / 2] float32."""
        angle = positions.to(torch.float32)[..., None] * self._frequency
        return angle.cos(), angle.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """`x` [B, n, heads, d] turned by `cosine`, `sine` [B or 1, n, 1, d / 2], in float32."""
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
    return turned.to(x.dtype)
