"""A strided convolution over time and bins, with ReLU."""

import torch
from torch import Tensor

from oasr_backend.layers.linear import onednn_multiplies
from oasr_backend.layers.packed_convolution import PackedConvolution
from oasr_backend.layers.product import make_product


class Convolution2d:
    """y = relu(w * x + b) without padding, channels last on both sides.

    With many channels on CPU it is oneDNN's. Otherwise it is a matrix product over
    unfolded patches: with one channel that is as fast, and quantized products have no other form.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        stride: int,
        device: torch.device,
        dtype: torch.dtype,
        quantized: bool = False,
    ):
        """`weight` [out, in, K, K] and `bias` [out], any floating dtype."""
        outer, channels, self._kernel, _ = weight.shape
        self._stride = stride
        self._packed: PackedConvolution | None = None
        if channels > 1 and onednn_multiplies(device, dtype) and not quantized:
            self._packed = PackedConvolution(weight.to(dtype), bias.to(dtype), stride, activation="relu")
        else:
            # Patch order is (time, bin, channel).
            flat = weight.permute(0, 2, 3, 1).reshape(outer, -1)
            self._product = make_product(flat, bias, device, dtype, "relu", quantized=quantized)

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [B, T, bins, in] -> [B, (T - K) // stride + 1, (bins - K) // stride + 1, out]."""
        if self._packed is not None:
            return self._packed(x)
        kernel, stride = self._kernel, self._stride
        patches = x.unfold(1, kernel, stride).unfold(2, kernel, stride)
        return self._product(patches.permute(0, 1, 2, 4, 5, 3).flatten(3))
