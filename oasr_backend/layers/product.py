"""A layer's matrix product, in the precision that it is to have."""

from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.layers.linear import Linear
from oasr_backend.layers.quantized_linear import QuantizedLinear
from oasr_backend.models.config import Activation


class Product(Protocol):
    """y = activation(x Wᵀ + b) (+ residual)."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`x` [..., in] -> [..., out]; `residual` [..., out] is added after the product (no activation then)."""


def make_product(
    weight: Tensor,
    bias: Tensor | None,
    device: torch.device,
    dtype: torch.dtype,
    activation: Activation = "none",
    *,
    quantized: bool = False,
) -> Product:
    """`weight` [out, in] and `bias` [out], any floating dtype."""
    return (QuantizedLinear if quantized else Linear)(weight, bias, device, dtype, activation)
