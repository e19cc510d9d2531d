"""An encoder of equal layers: one forward pass, whatever holds its history."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.attention import AttentionMemory, PositionInput, SelfAttention
from oasr_backend.layers.convolution import ConvolutionMemory, ConvolutionModule
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.layers.subsampling import ConvSubsampling
from oasr_backend.models.config import EncoderConfig
from oasr_backend.models.positions import PositionEncoding


class EncoderMemory(AttentionMemory, ConvolutionMemory, Protocol):
    """The history of a forward pass: a paged cache when streaming, the clip itself when offline."""


class EncoderLayer(Protocol):
    """One layer; it may ask the memory for its attention and its convolution."""

    attention: SelfAttention
    convolution: ConvolutionModule | None

    def __call__(self, x: Tensor, positions: PositionInput, memory: EncoderMemory) -> Tensor:
        """[B, n, dim] -> [B, n, dim]."""


class LayerFactory(Protocol):
    def __call__(
        self, weights: WeightReader, index: int, config: EncoderConfig, device: torch.device, dtype: torch.dtype
    ) -> EncoderLayer: ...


class Encoder:
    """Features to hidden frames. Feature normalisation (CMVN) is inside, as WeNet has it."""

    def __init__(
        self,
        weights: WeightReader,
        config: EncoderConfig,
        make_layer: LayerFactory,
        cmvn: tuple[Tensor, Tensor] | None,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.config = config
        self._cmvn = None if cmvn is None else tuple(part.to(device) for part in cmvn)
        self._subsampling = ConvSubsampling(weights, config, PositionEncoding.input_scale(config), device, dtype)
        self._layers: Sequence[EncoderLayer] = [
            make_layer(weights, index, config, device, dtype) for index in range(config.layers)
        ]
        positions = [layer.attention.position for layer in self._layers]
        names = (f"encoder.encoders.{index}.self_attn.linear_pos" for index in range(config.layers))
        self._positions = PositionEncoding(
            config,
            [one for one in positions if one is not None],
            device,
            dtype,
            weights.quantization.covers(*names),
        )
        for layer in self._layers:
            # They live on in the product.
            layer.attention.position = None
        self._after_norm: LayerNorm | None = None
        if config.normalize_before and config.final_norm:
            self._after_norm = LayerNorm(weights, "encoder.after_norm", config.dim, device, dtype)
        else:
            # WeNet makes the layer in any case and leaves it unused.
            weights.ignore(weights.names("encoder.after_norm."))

    @property
    def fresh_convolution_history(self) -> Tensor | None:
        """What a new stream's convolution history holds in every frame: [layers, dim]; None where there is none."""
        modules = [layer.convolution for layer in self._layers if layer.convolution is not None]
        return torch.stack([module.fresh_history for module in modules]) if modules else None

    def __call__(self, features: Tensor, positions: Tensor, memory: EncoderMemory) -> Tensor:
        """`features` [B, T, bins] float32, `positions` [B or 1, n] of the n encoder frames -> [B, n, dim]."""
        return self.encode(self.embed(features), positions, memory)

    def embed(self, features: Tensor) -> Tensor:
        """`features` [B, T, bins] float32 -> frames [B, n, dim], each of its own window alone."""
        if self._cmvn is not None:
            features = (features - self._cmvn[0]) * self._cmvn[1]
        return self._subsampling(features)

    def encode(self, frames: Tensor, positions: Tensor, memory: EncoderMemory) -> Tensor:
        """`frames` [B, n, dim] at `positions` [B or 1, n] -> [B, n, dim]."""
        x, place = self._positions(frames, positions)
        for layer in self._layers:
            x = layer(x, place, memory)
        return x if self._after_norm is None else self._after_norm(x)
