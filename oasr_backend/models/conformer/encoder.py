"""The Conformer encoder: one forward pass, whatever holds its history."""

from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.attention import AttentionMemory, RelativeSelfAttention
from oasr_backend.layers.convolution import ConvolutionMemory, ConvolutionModule
from oasr_backend.layers.feed_forward import FeedForward
from oasr_backend.layers.linear import Linear
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.layers.positional import SinusoidalPosition
from oasr_backend.layers.subsampling import ConvSubsampling
from oasr_backend.models.config import EncoderConfig


class EncoderMemory(AttentionMemory, ConvolutionMemory, Protocol):
    """The history of a forward pass: a paged cache when streaming, the clip itself when offline."""


class ConformerLayer:
    """Half feed-forward, attention, convolution, half feed-forward, each added to its input; then a norm."""

    def __init__(
        self, weights: WeightReader, index: int, config: EncoderConfig, device: torch.device, dtype: torch.dtype
    ):
        name = f"encoder.encoders.{index}"
        self._index = index

        def norm(part: str) -> LayerNorm:
            return LayerNorm(weights, f"{name}.{part}", config.dim, device, dtype)

        def feed_forward(part: str) -> FeedForward:
            return FeedForward(weights, f"{name}.{part}", config.dim, config.ffn_dim, device, dtype, scale=0.5)

        self._norm_macaron, self._macaron = norm("norm_ff_macaron"), feed_forward("feed_forward_macaron")
        self._norm_attention = norm("norm_mha")
        self.attention = RelativeSelfAttention(weights, f"{name}.self_attn", config.dim, config.heads, device, dtype)
        self._norm_convolution = norm("norm_conv")
        self.convolution = ConvolutionModule(weights, f"{name}.conv_module", config, device, dtype)
        self._norm_feed_forward, self._feed_forward = norm("norm_ff"), feed_forward("feed_forward")
        self._norm_final = norm("norm_final")

    def __call__(self, x: Tensor, position: Tensor, memory: EncoderMemory) -> Tensor:
        x = self._macaron(self._norm_macaron(x), x)
        x = self.attention(self._index, self._norm_attention(x), x, position, memory)
        x = self.convolution(self._index, self._norm_convolution(x), x, memory)
        x = self._feed_forward(self._norm_feed_forward(x), x)
        return self._norm_final(x)


class ConformerEncoder:
    """Features to hidden frames. Feature normalisation (CMVN) is inside, as WeNet has it."""

    def __init__(
        self,
        weights: WeightReader,
        config: EncoderConfig,
        cmvn: tuple[Tensor, Tensor] | None,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.config = config
        self._cmvn = None if cmvn is None else tuple(part.to(device) for part in cmvn)
        self._subsampling = ConvSubsampling(weights, config, device, dtype)
        self._position = SinusoidalPosition(config.dim, device, dtype)
        self._layers = [ConformerLayer(weights, index, config, device, dtype) for index in range(config.layers)]
        # All layers' position projections in one product.
        self._project_positions = Linear(
            torch.cat([layer.attention.position_weight for layer in self._layers]), None, device, dtype
        )
        self._after_norm = LayerNorm(weights, "encoder.after_norm", config.dim, device, dtype)

    @property
    def fresh_convolution_history(self) -> Tensor:
        """What a new stream's convolution history holds in every frame: [layers, dim]."""
        return torch.stack([layer.convolution.fresh_history for layer in self._layers])

    def __call__(self, features: Tensor, positions: Tensor, memory: EncoderMemory) -> Tensor:
        """`features` [B, T, bins] float32, `positions` [B or 1, n] of the n encoder frames -> [B, n, dim]."""
        if self._cmvn is not None:
            features = (features - self._cmvn[0]) * self._cmvn[1]
        x = self._subsampling(features)
        place = self._project_positions(self._position(positions)).split(self.config.dim, dim=-1)
        for layer, position in zip(self._layers, place, strict=True):
            x = layer(x, position, memory)
        return self._after_norm(x)
