"""A Conformer layer."""

from collections.abc import Callable

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.attention import PositionInput, SelfAttention
from oasr_backend.layers.convolution import ConvolutionModule
from oasr_backend.layers.feed_forward import FeedForward
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.models.config import EncoderConfig
from oasr_backend.models.encoder import EncoderMemory


class ConformerLayer:
    """Half feed-forward, attention, convolution, half feed-forward, each added to its input; then a norm.

    Without the macaron style there is one whole feed-forward; without the convolution no final norm. A norm stands
    before its module, or after the sum where `normalize_before` is false.
    """

    def __init__(
        self, weights: WeightReader, index: int, config: EncoderConfig, device: torch.device, dtype: torch.dtype
    ):
        name = f"encoder.encoders.{index}"
        self._index = index
        self._before = config.normalize_before
        scale = 0.5 if config.macaron else 1.0

        def norm(part: str) -> LayerNorm:
            return LayerNorm(weights, f"{name}.{part}", config.dim, device, dtype)

        def feed_forward(part: str) -> FeedForward:
            return FeedForward(
                weights,
                f"{name}.{part}",
                config.dim,
                config.ffn_dim,
                device,
                dtype,
                config.activation,
                scale,
                config.ffn_bias,
            )

        self._macaron = feed_forward("feed_forward_macaron") if config.macaron else None
        self._norm_macaron = norm("norm_ff_macaron") if config.macaron else None
        self._norm_attention = norm("norm_mha")
        self.attention = SelfAttention(weights, f"{name}.self_attn", config.dim, config.attention, device, dtype)
        self.convolution: ConvolutionModule | None = None
        if config.convolution is not None:
            self._norm_convolution, self._norm_final = norm("norm_conv"), norm("norm_final")
            self.convolution = ConvolutionModule(
                weights, f"{name}.conv_module", config.dim, config.convolution, config.activation, device, dtype
            )
        self._norm_feed_forward, self._feed_forward = norm("norm_ff"), feed_forward("feed_forward")
        # Written by WeNet before 2022-05 even where nothing uses it.
        weights.ignore(weights.names(f"{name}.concat_linear."))

    def __call__(self, x: Tensor, positions: PositionInput, memory: EncoderMemory) -> Tensor:
        if self._macaron is not None and self._norm_macaron is not None:
            x = self._around(self._macaron, self._norm_macaron, x)
        attention = self.attention
        x = self._around(lambda y, base: attention(self._index, y, base, positions, memory), self._norm_attention, x)
        convolution = self.convolution
        if convolution is not None:
            x = self._around(lambda y, base: convolution(self._index, y, base, memory), self._norm_convolution, x)
        x = self._around(self._feed_forward, self._norm_feed_forward, x)
        return x if convolution is None else self._norm_final(x)

    def _around(self, module: Callable[[Tensor, Tensor], Tensor], norm: LayerNorm, x: Tensor) -> Tensor:
        """`module` with its residual and its norm, before it or after the sum."""
        return module(norm(x), x) if self._before else norm(module(x, x))
