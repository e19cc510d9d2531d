"""A strided convolution over time and bins, with ReLU."""

import torch
from torch import Tensor

from oasr_backend.layers.linear import onednn_multiplies
from oasr_backend.layers.product import make_product


class Convolution2d:
    """y = relu(w * x + b) without padding, channels last on both sides.

    With many channels on CPU it is oneDNN's, whose weights are packed once. Otherwise it is a matrix product over
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
        self._packed: Tensor | None = None
        if channels > 1 and device.type == "cpu" and onednn_multiplies(dtype) and not quantized:
            # The layout that suits one frame suits any number of them.
            size = [1, channels, self._kernel, self._kernel]
            self._packed = torch.ops.mkldnn._reorder_convolution_weight(
                weight.to(dtype), [0, 0], [stride, stride], [1, 1], 1, size
            )
            self._bias = bias.to(dtype)
        else:
            # Patch order is (time, bin, channel).
            flat = weight.permute(0, 2, 3, 1).reshape(outer, -1)
            self._product = make_product(flat, bias, device, dtype, "relu", quantized=quantized)

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [B, T, bins, in] -> [B, (T - K) // stride + 1, (bins - K) // stride + 1, out]."""
        kernel, stride = self._kernel, self._stride
        if self._packed is None:
            patches = x.unfold(1, kernel, stride).unfold(2, kernel, stride)
            return self._product(patches.permute(0, 1, 2, 4, 5, 3).flatten(3))
        return torch.ops.mkldnn._convolution_pointwise(
            x.permute(0, 3, 1, 2), self._packed, self._bias, [0, 0], [stride, stride], [1, 1], 1, "relu", [], ""
        ).permute(0, 2, 3, 1)
