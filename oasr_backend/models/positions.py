"""Positions of a pass' frames, computed once and used by every layer."""

import torch
from torch import Tensor

from oasr_backend.layers.positional import RotaryPosition, SinusoidalPosition
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import EncoderConfig


class PassPositions:
    """What the layers of one pass may ask for."""

    def __init__(self, projected: tuple[Tensor, ...] = (), rotation: tuple[Tensor, Tensor] | None = None):
        self._projected = projected
        self._rotation = rotation

    def projected(self, layer: int) -> Tensor:
        return self._projected[layer]

    def rotation(self) -> tuple[Tensor, Tensor]:
        assert self._rotation is not None
        return self._rotation


class PositionEncoding:
    """Gives every architecture its positions: added to the input, projected per layer, or as rotations."""

    def __init__(
        self,
        config: EncoderConfig,
        layer_projections: list[Tensor],
        device: torch.device,
        dtype: torch.dtype,
        quantized: bool = False,
    ):
        """`layer_projections`: the layers' position weights [heads * d, dim]; empty unless `rel_pos`."""
        attention = config.attention
        self._kind = attention.position
        self._sizes = [weight.shape[0] for weight in layer_projections]
        if self._kind in ("rel_pos", "abs_pos"):
            self._sinusoid = SinusoidalPosition(config.dim, device, dtype)
        if self._kind == "rel_pos":
            # All layers' projections in one product.
            self._project = make_product(torch.cat(layer_projections), None, device, dtype, quantized=quantized)
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
                projected = self._project(self._sinusoid(positions)).split(self._sizes, dim=-1)
                return x, PassPositions(projected=projected)
            case "abs_pos":
                return x + self._sinusoid(positions), PassPositions()
            case "rope_pos":
                cosine, sine = self._rotary(positions)
                return x, PassPositions(rotation=(cosine[:, :, None, :], sine[:, :, None, :]))
            case "no_pos":
                return x, PassPositions()
