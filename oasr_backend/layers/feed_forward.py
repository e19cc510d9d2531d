"""The position-wise feed-forward module."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import Activation


class FeedForward:
    """residual + scale * W2 act(W1 x); the scale is folded into W2."""

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
        bias: bool = True,
    ):
        up_bias = weights.take(f"{name}.w_1.bias", hidden) if bias else None
        down_bias = weights.take(f"{name}.w_2.bias", dim) * scale if bias else None
        self._up = make_product(
            weights.take(f"{name}.w_1.weight", hidden, dim),
            up_bias,
            device,
            dtype,
            activation,
            quantized=weights.quantization.covers(f"{name}.w_1"),
        )
        self._down = make_product(
            weights.take(f"{name}.w_2.weight", dim, hidden) * scale,
            down_bias,
            device,
            dtype,
            quantized=weights.quantization.covers(f"{name}.w_2"),
        )

    def __call__(self, x: Tensor, residual: Tensor) -> Tensor:
        """[..., dim] -> [..., dim]."""
        return self._down(self._up(x), residual)
