"""The position-wise feed-forward module."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.linear import Activation, Linear


class FeedForward:
    """x + scale * W2 act(W1 norm(x)); the scale is folded into W2."""

    def __init__(
        self,
        weights: WeightReader,
        name: str,
        dim: int,
        hidden: int,
        device: torch.device,
        dtype: torch.dtype,
        activation: Activation = "swish",
        scale: float = 1.0,
    ):
        self._up = Linear(
            weights.take(f"{name}.w_1.weight", hidden, dim),
            weights.take(f"{name}.w_1.bias", hidden),
            device,
            dtype,
            activation,
        )
        self._down = Linear(
            weights.take(f"{name}.w_2.weight", dim, hidden) * scale,
            weights.take(f"{name}.w_2.bias", dim) * scale,
            device,
            dtype,
        )

    def __call__(self, normed: Tensor, residual: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]."""
        return self._down(self._up(normed), residual)
