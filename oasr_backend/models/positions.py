"""Positions of a pass' frames, computed once and used by every layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.layers.attention import PositionWeights
from oasr_backend.layers.positional import RotaryPosition, SinusoidalPosition
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import EncoderConfig
from oasr_backend.quantization.int8_weight import Int8Weight

# Projections of the first positions are kept on CPU, where looking them up is cheaper: so many, in so much memory.
_KEPT_POSITIONS, _KEPT_BYTES = 2048, 32 << 20


class PassPositions:
    """What the layers of one pass may ask for."""

    def __init__(
        self,
        projected: tuple[Tensor, ...] = (),
        biases: tuple[Tensor, ...] = (),
        rotation: tuple[Tensor, Tensor] | None = None,
    ):
        self._projected = projected
        self._biases = biases
        self._rotation = rotation

    def projected(self, layer: int) -> Tensor:
        return self._projected[layer]

    def bias(self, layer: int) -> Tensor:
        return self._biases[layer]

    def rotation(self) -> tuple[Tensor, Tensor]:
        assert self._rotation is not None
        return self._rotation


class PositionEncoding:
    """Gives every architecture its positions: added to the input, projected per layer, or as rotations."""

    def __init__(
        self,
        config: EncoderConfig,
        layers: Sequence[PositionWeights],
        device: torch.device,
        dtype: torch.dtype,
        quantized: bool = False,
    ):
        """`layers`: empty unless `rel_pos`."""
        attention = config.attention
        self._kind, self._dtype = attention.position, dtype
        self._heads = (len(layers), attention.heads)
        if self._kind in ("rel_pos", "abs_pos"):
            self._sinusoid = SinusoidalPosition(config.dim, device)
        if self._kind == "rel_pos":
            # All layers in one product.
            self._project = make_product(
                torch.cat([layer.projection for layer in layers]), None, device, dtype, quantized=quantized
            )
            # v·(W s) = (Wᵀ v)·s: a few numbers a frame, in float32 as the scores that they are added to.
            self._bias = torch.cat([_bias_weight(layer, quantized) for layer in layers]).to(device)
            row = len(layers) * attention.heads * attention.head_dim * dtype.itemsize
            self._keeps = min(_KEPT_POSITIONS, _KEPT_BYTES // row) if device.type == "cpu" else 0
            # Computed when they are first asked for, as a model that is only examined needs none.
            self._kept: tuple[Tensor, Tensor] | None = None
        if self._kind == "rope_pos":
            self._rotary = RotaryPosition(attention.head_dim, device)

    @staticmethod
    def input_scale(config: EncoderConfig) -> float:
        """What WeNet multiplies the front end's output by."""
        return 1.0 if config.attention.position == "no_pos" else config.dim**0.5

    def __call__(self, x: Tensor, positions: Tensor) -> tuple[Tensor, PassPositions]:
        """`x` [B, n, dim], `positions` [B or 1, n] -> the layers' input and what they may ask for."""
        match self._kind:
            case "rel_pos":
                projected, biases = self._projected(positions)
                projected, biases = projected.unflatten(-1, (*self._heads, -1)), biases.unflatten(-1, self._heads)
                return x, PassPositions(projected.unbind(2), biases.unbind(2))
            case "abs_pos":
                return x + self._sinusoid(positions).to(self._dtype), PassPositions()
            case "rope_pos":
                cosine, sine = self._rotary(positions)
                return x, PassPositions(rotation=(cosine[:, :, None, :], sine[:, :, None, :]))
            case "no_pos":
                return x, PassPositions()

    def _projected(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """`positions` [B or 1, n] -> [B or 1, n, layers * heads * d], and biases [B or 1, n, layers * heads]."""
        if not self._keeps or not positions.numel() or int(positions.max()) >= self._keeps:
            return self._computed(positions)
        if self._kept is None:
            self._kept = self._computed(torch.arange(self._keeps))
        projected, biases = (part.index_select(0, positions.flatten()) for part in self._kept)
        return projected.unflatten(0, positions.shape), biases.unflatten(0, positions.shape)

    def _computed(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        sinusoid = self._sinusoid(positions)
        return self._project(sinusoid.to(self._dtype)), torch.nn.functional.linear(sinusoid, self._bias)


def _bias_weight(layer: PositionWeights, quantized: bool) -> Tensor:
    """[heads, dim]: Wᵀ v of each head.

    `quantized`: of W in whole numbers, as a checkpoint that was written in them knows no other.
    """
    heads, size = layer.v.shape
    projection = Int8Weight.of(layer.projection).restored() if quantized else layer.projection.float()
    return torch.einsum("hd,hdi->hi", layer.v.float(), projection.view(heads, size, -1))
