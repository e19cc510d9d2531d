"""A Transformer layer (Vaswani et al. 2017)."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.attention import PositionInput, SelfAttention
from oasr_backend.layers.convolution import ConvolutionModule
from oasr_backend.layers.feed_forward import FeedForward
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.models.config import EncoderConfig
from oasr_backend.models.encoder import EncoderMemory


class TransformerLayer:
    """Attention, then feed-forward; a norm before each, or after each sum where `normalize_before` is false."""

    convolution: ConvolutionModule | None = None

    def __init__(
        self, weights: WeightReader, index: int, config: EncoderConfig, device: torch.device, dtype: torch.dtype
    ):
        name = f"encoder.encoders.{index}"
        self._index = index
        self._before = config.normalize_before
        self.attention = SelfAttention(weights, f"{name}.self_attn", config.dim, config.attention, device, dtype)
        self._feed_forward = FeedForward(
            weights,
            f"{name}.feed_forward",
            config.dim,
            config.ffn_dim,
            device,
            dtype,
            config.activation,
            bias=config.ffn_bias,
        )
        self._norm1 = LayerNorm(weights, f"{name}.norm1", config.dim, device, dtype)
        self._norm2 = LayerNorm(weights, f"{name}.norm2", config.dim, device, dtype)
        # Written by WeNet before 2022-05 even where nothing uses it.
        weights.ignore(weights.names(f"{name}.concat_linear."))

    def __call__(self, x: Tensor, positions: PositionInput, memory: EncoderMemory) -> Tensor:
        if self._before:
            x = self.attention(self._index, self._norm1(x), x, positions, memory)
            return self._feed_forward(self._norm2(x), x)
        x = self._norm1(self.attention(self._index, x, x, positions, memory))
        return self._norm2(self._feed_forward(x, x))
