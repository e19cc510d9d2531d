"""Convolutions by oneDNN."""

from typing import Literal

import torch
from torch import Tensor


class PackedConvolution:
    """oneDNN's convolution on a CPU, without padding, channels last on both sides, with weights that are packed once.

    For devices and dtypes of which `onednn_multiplies` is true.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        stride: int = 1,
        groups: int = 1,
        activation: Literal["none", "relu"] = "none",
    ):
        """`weight` [out, in / groups, K, L] and `bias` [out], of one dtype."""
        _, inner, *kernel = weight.shape
        self._strides, self._groups, self._activation = [stride, stride], groups, activation
        # The layout that suits one frame suits any number of them.
        size = [1, inner * groups, *kernel]
        self._weight = torch.ops.mkldnn._reorder_convolution_weight(weight, [0, 0], self._strides, [1, 1], groups, size)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [B, height, width, in] -> [B, (height - K) // stride + 1, (width - L) // stride + 1, out]."""
        y = torch.ops.mkldnn._convolution_pointwise(
            x.permute(0, 3, 1, 2),
            self._weight,
            self._bias,
            [0, 0],
            self._strides,
            [1, 1],
            self._groups,
            self._activation,
            [],
            "",
        )
        return y.permute(0, 2, 3, 1)
