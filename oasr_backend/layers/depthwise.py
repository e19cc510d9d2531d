"""Convolutions of every channel by itself, along time."""

import torch
from torch import Tensor

from oasr_backend.layers.linear import onednn_multiplies
from oasr_backend.layers.packed_convolution import PackedConvolution


class Depthwise:
    """y[t, c] = Σ_k w[c, k] x[t + k, c] + b[c], without padding.

    On CPU it is oneDNN's two-dimensional convolution over one row, as frames lie in memory. It is float32 there
    whatever the model is: the bfloat16 kernel is generated without end for some shapes and numbers of threads (oneDNN
    in torch 2.13, 32 channels by two threads).
    """

    def __init__(self, weight: Tensor, bias: Tensor, device: torch.device, dtype: torch.dtype):
        """`weight` [dim, 1, K] and `bias` [dim], any floating dtype."""
        self.dtype = torch.float32 if device.type == "cpu" else dtype
        self._weight, self._bias = weight.to(device, self.dtype), bias.to(device, self.dtype)
        self._packed: PackedConvolution | None = None
        if onednn_multiplies(device, self.dtype):
            self._packed = PackedConvolution(self._weight.unsqueeze(2), self._bias, groups=weight.shape[0])

    def __call__(self, x: Tensor) -> Tensor:
        """`x` [B, K - 1 + n, dim] of any floating dtype -> [B, n, dim] of `dtype`."""
        x = x.to(self.dtype)
        if self._packed is not None:
            return self._packed(x.unsqueeze(1)).squeeze(1)
        channels = x.transpose(1, 2)
        y = torch.nn.functional.conv1d(channels, self._weight, self._bias, groups=channels.shape[1])
        return y.transpose(1, 2)
