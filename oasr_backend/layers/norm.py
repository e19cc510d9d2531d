"""Normalisation over the feature axis."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader


class LayerNorm:
    """Layer normalisation with WeNet's epsilon."""

    EPSILON = 1e-5

    def __init__(self, weights: WeightReader, name: str, dim: int, device: torch.device, dtype: torch.dtype):
        self._shape = (dim,)
        self._weight = weights.take(f"{name}.weight", dim).to(device, dtype)
        self._bias = weights.take(f"{name}.bias", dim).to(device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """[..., dim] -> the same shape."""
        return torch.nn.functional.layer_norm(x, self._shape, self._weight, self._bias, self.EPSILON)
