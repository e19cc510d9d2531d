"""The Conformer's convolution module (Gulati et al. 2020)."""

from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.depthwise import Depthwise
from oasr_backend.layers.linear import ELEMENTWISE
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import Activation, ConvolutionConfig


class ConvolutionMemory(Protocol):
    """What stands before and after the frames of a pass."""

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        """`gated` [B, n, dim] with the K-1 frames around it that the kernel needs: [B, K - 1 + n, dim].

        All before it when causal (its history), else half on each side (zeros), with frames past a row's length
        zeroed, so that a row never depends on its padding.
        """

    def kept(self, x: Tensor) -> Tensor:
        """The pass' own frames [B, n, dim] among those of the convolution over what `extend` gave."""


class ConvolutionModule:
    """residual + W2 act(norm(depthwise(GLU(W1 x)))).

    The history is kept after the GLU: a fresh one is GLU(bias), which is what zero input frames give.
    """

    def __init__(
        self,
        weights: WeightReader,
        name: str,
        dim: int,
        config: ConvolutionConfig,
        activation: Activation,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._kernel, self._causal = config.kernel, config.causal
        self._activation = ELEMENTWISE[activation]

        def bias(part: str, size: int) -> Tensor:
            return weights.take(f"{name}.{part}.bias", size) if config.bias else torch.zeros(size)

        enter_bias = bias("pointwise_conv1", 2 * dim)
        self.fresh_history = torch.nn.functional.glu(enter_bias, dim=-1).to(device, dtype)
        self._enter = make_product(
            weights.take(f"{name}.pointwise_conv1.weight", 2 * dim, dim, 1).squeeze(-1),
            enter_bias,
            device,
            dtype,
            quantized=weights.quantization.covers(f"{name}.pointwise_conv1"),
        )
        depthwise = weights.take(f"{name}.depthwise_conv.weight", dim, 1, config.kernel)
        depthwise_bias = bias("depthwise_conv", dim)
        if config.norm == "batch_norm":
            depthwise, depthwise_bias = _fold_batch_norm(weights, f"{name}.norm", depthwise, depthwise_bias)
        self._depthwise = Depthwise(depthwise, depthwise_bias, device, dtype)
        self._norm: LayerNorm | None = None
        if config.norm == "layer_norm":
            self._norm = LayerNorm(weights, f"{name}.norm", dim, device, self._depthwise.dtype)
        self._leave = make_product(
            weights.take(f"{name}.pointwise_conv2.weight", dim, dim, 1).squeeze(-1),
            bias("pointwise_conv2", dim),
            device,
            dtype,
            quantized=weights.quantization.covers(f"{name}.pointwise_conv2"),
        )

    def __call__(self, layer: int, x: Tensor, residual: Tensor, memory: ConvolutionMemory) -> Tensor:
        """[B, n, dim] -> [B, n, dim]."""
        gated = torch.nn.functional.glu(self._enter(x), dim=-1)
        extended = memory.extend(layer, gated, self._kernel, self._causal)
        y = memory.kept(self._depthwise(extended))
        if self._norm is not None:
            y = self._norm(y)
        return self._leave(self._activation(y).to(x.dtype).contiguous(), residual)


def pad_centred(gated: Tensor, lengths: Tensor, kernel: int) -> Tensor:
    """Zeros around each row's `lengths` [B] valid frames: [B, n, dim] -> [B, K - 1 + n, dim]."""
    past = torch.arange(gated.shape[1], device=gated.device)[None, :] >= lengths[:, None]
    half = (kernel - 1) // 2
    return torch.nn.functional.pad(gated.masked_fill(past[:, :, None], 0.0), (0, 0, half, half))


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
