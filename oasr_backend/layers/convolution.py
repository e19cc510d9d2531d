"""The Conformer's convolution module (Gulati et al. 2020)."""

from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.linear import Linear
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.models.config import EncoderConfig


class ConvolutionMemory(Protocol):
    """Where a causal convolution's history lives during a forward pass."""

    def extend(self, layer: int, gated: Tensor) -> Tensor:
        """`gated` [B, n, dim] with its K-1 earlier frames before it: [B, K - 1 + n, dim]."""


class ConvolutionModule:
    """x + W2 swish(norm(depthwise(GLU(W1 norm(x))))), causal.

    The history is kept after the GLU: a fresh one is GLU(bias), which is what zero input frames give.
    """

    def __init__(
        self, weights: WeightReader, name: str, config: EncoderConfig, device: torch.device, dtype: torch.dtype
    ):
        dim, kernel = config.dim, config.kernel
        self._enter = Linear(
            weights.take(f"{name}.pointwise_conv1.weight", 2 * dim, dim, 1).squeeze(-1),
            weights.take(f"{name}.pointwise_conv1.bias", 2 * dim),
            device,
            dtype,
        )
        self.fresh_history = _glu_of_bias(weights.take(f"{name}.pointwise_conv1.bias", 2 * dim)).to(device, dtype)
        depthwise = weights.take(f"{name}.depthwise_conv.weight", dim, 1, kernel)
        bias = weights.take(f"{name}.depthwise_conv.bias", dim)
        self._norm: LayerNorm | None = None
        if config.conv_norm == "batch_norm":
            depthwise, bias = _fold_batch_norm(weights, f"{name}.norm", depthwise, bias)
        else:
            self._norm = LayerNorm(weights, f"{name}.norm", dim, device, dtype)
        self._depthwise = depthwise.to(device, dtype)
        self._depthwise_bias = bias.to(device, dtype)
        self._leave = Linear(
            weights.take(f"{name}.pointwise_conv2.weight", dim, dim, 1).squeeze(-1),
            weights.take(f"{name}.pointwise_conv2.bias", dim),
            device,
            dtype,
        )

    def __call__(self, layer: int, normed: Tensor, residual: Tensor, memory: ConvolutionMemory) -> Tensor:
        """[B, n, dim] -> [B, n, dim]."""
        x = memory.extend(layer, torch.nn.functional.glu(self._enter(normed), dim=-1))
        x = torch.nn.functional.conv1d(
            x.transpose(1, 2), self._depthwise, self._depthwise_bias, groups=self._depthwise.shape[0]
        ).transpose(1, 2)
        if self._norm is not None:
            x = self._norm(x)
        return self._leave(torch.nn.functional.silu(x).contiguous(), residual)


def _glu_of_bias(bias: Tensor) -> Tensor:
    return torch.nn.functional.glu(bias, dim=-1)


def _fold_batch_norm(weights: WeightReader, name: str, depthwise: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Inference batch normalisation is affine per channel, so it disappears into the convolution before it."""
    dim = bias.shape[0]
    gain = weights.take(f"{name}.weight", dim)
    shift = weights.take(f"{name}.bias", dim)
    mean = weights.take(f"{name}.running_mean", dim)
    variance = weights.take(f"{name}.running_var", dim)
    weights.ignore([f"{name}.num_batches_tracked"])
    gain = gain * (variance + LayerNorm.EPSILON).rsqrt()
    return depthwise * gain[:, None, None], (bias - mean) * gain + shift
