"""A weight as whole numbers with a scale per output channel."""

from dataclasses import dataclass

import torch
from torch import Tensor

LARGEST = 127
# Rows of zeros have a scale, too.
SMALLEST_SCALE = 1e-12


@dataclass(frozen=True)
class Int8Weight:
    """`values` [out, ...] int8 in [-127, 127] times `scales` [out] float32."""

    values: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Int8Weight":
        """`weight` [out, ...] of any floating dtype, rounded; what `restored` gives is rounded to the same numbers."""
        rows = weight.float().flatten(1)
        scales = (rows.abs().amax(1) / LARGEST).clamp_min(SMALLEST_SCALE)
        values = (rows / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8)
        return cls(values.view(weight.shape), scales)

    def restored(self) -> Tensor:
        """float32, of the weight's shape."""
        return self.values * self.scales.view(-1, *[1] * (self.values.dim() - 1))
