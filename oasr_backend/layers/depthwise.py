"""Convolutions of every channel by itself, along time."""

import torch
from torch import Tensor

from oasr_backend.layers.linear import onednn_multiplies


class Depthwise:
    """y[t, c] = Σ_k w[c, k] x[t + k, c] + b[c], without padding.

    On CPU it is oneDNN's two-dimensional convolution over one row in channels-last order, which is how frames lie in
    memory, with weights that are packed once. It is float32 there whatever the model is: the bfloat16 kernel is
    generated without end for some shapes and numbers of threads (oneDNN in torch 2.13, 32 channels by two threads).
    """

    def __init__(self, weight: Tensor, bias: Tensor, device: torch.device, dtype: torch.dtype):
        """`weight` [dim, 1, K] and `bias` [dim], any floating dtype."""
        self.dtype = torch.float32 if device.type == "cpu" else dtype
        self._weight, self._bias = weight.to(device, self.dtype), bias.to(device, self.dtype)
        self._packed: Tensor | None = None
        if device.type == "cpu" and onednn_multiplies(self.dtype):
            dim, _, kernel = weight.shape
            # The layout that suits one frame suits any number of them.
            size = [1, dim, 1, kernel]
            self._packed = torch.ops.mkldnn._reorder_convolution_weight(
                self._weight.unsqueeze(2), [0, 0], [1, 1], [1, 1], dim, size
            )

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [B, K - 1 + n, dim] of any floating dtype -> [B, n, dim] of `dtype`."""
        channels = x.to(self.dtype).transpose(1, 2)
        if self._packed is None:
            y = torch.nn.functional.conv1d(channels, self._weight, self._bias, groups=x.shape[2])
        else:
            y = torch.ops.mkldnn._convolution_pointwise(
                channels.unsqueeze(2), self._packed, self._bias, [0, 0], [1, 1], [1, 1], x.shape[2], "none", [], ""
            ).squeeze(2)
        return y.transpose(1, 2)
