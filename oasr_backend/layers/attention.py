"""Multi-head self-attention, with positions folded into the keys."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.positional import rotate
from oasr_backend.layers.product import make_product
from oasr_backend.models.config import AttentionConfig

# Finite, because fused kernels turn rows of -inf into NaN.
MASKED = -1e9


class AttentionMemory(Protocol):
    """Where keys and values live during a forward pass."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> Tensor:
        """Adds the new keys to layer `layer` and attends over all it may see.

        `query` [B, n, heads, d], `key` [B, n, key heads, d], `value` [B, n, value heads, d]; `key_bias`
        [B, n, heads] float32, already divided by √d, or None. Returns [B, n, heads * d].
        """


class PositionInput(Protocol):
    """Positions of a pass' new frames, as the layers use them: see `models.positions`."""

    def projected(self, layer: int) -> Tensor:
        """[B or 1, n, heads, d]: the sinusoids through the layer's own projection (`rel_pos`)."""

    def bias(self, layer: int) -> Tensor:
        """[B or 1, n, heads] float32: v·p / √d of that projection (`rel_pos`)."""

    def rotation(self) -> tuple[Tensor, Tensor]:
        """cos and sin, each [B or 1, n, 1, d / 2] float32 (`rope_pos`)."""


@dataclass(frozen=True)
class PositionWeights:
    """What a layer does with sinusoids (`rel_pos`): its projection [heads * d, dim], and v / √d [heads, d]."""

    projection: Tensor
    v: Tensor


class SelfAttention:
    """Self-attention over a memory.

    WeNet's `rel_pos` has no relative shift: score(i, j) = ((q_i + u)·k_j + (q_i + v)·p_j) / √d, where p_j depends on
    the absolute position of key j alone, is q_i·(k_j + p_j) / √d + c_j with c_j = (u·k_j + v·p_j) / √d: plain
    attention over folded keys and a bias per key (Dai et al. 2019 for u and v). Rotary positions are applied to a key
    when it is written; absolute ones were added to the input.
    """

    def __init__(
        self,
        weights: WeightReader,
        name: str,
        dim: int,
        config: AttentionConfig,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._config = config
        query_dim, kv_dim = config.heads * config.head_dim, config.kv_heads * config.head_dim
        parts = (
            ("linear_q", query_dim, config.query_bias),
            ("linear_k", kv_dim, config.key_bias),
            ("linear_v", kv_dim, config.value_bias),
        )
        self._sizes = [size for _, size, _ in parts]
        self._qkv = make_product(
            torch.cat([weights.take(f"{name}.{part}.weight", size, dim) for part, size, _ in parts]),
            torch.cat(
                [weights.take(f"{name}.{part}.bias", size) if bias else torch.zeros(size) for part, size, bias in parts]
            ),
            device,
            dtype,
            quantized=weights.quantization.covers(*(f"{name}.{part}" for part, *_ in parts)),
        )
        # WeNet's `query_bias` rules the output projection too.
        out_bias = weights.take(f"{name}.linear_out.bias", dim) if config.query_bias else None
        self._out = make_product(
            weights.take(f"{name}.linear_out.weight", dim, query_dim),
            out_bias,
            device,
            dtype,
            quantized=weights.quantization.covers(f"{name}.linear_out"),
        )
        self.position: PositionWeights | None = None
        if config.position == "rel_pos":
            # float32: the bias is added to float32 scores.
            scale = config.head_dim**-0.5
            shape = (config.heads, config.head_dim)
            self._u = weights.take(f"{name}.pos_bias_u", *shape).to(device) * scale
            self.position = PositionWeights(
                weights.take(f"{name}.linear_pos.weight", query_dim, dim),
                weights.take(f"{name}.pos_bias_v", *shape) * scale,
            )

    def __call__(
        self, layer: int, x: Tensor, residual: Tensor, positions: PositionInput, memory: AttentionMemory
    ) -> Tensor:
        """`x`, `residual` [B, n, dim] -> [B, n, dim]."""
        query, key, value = (
            part.unflatten(-1, (-1, self._config.head_dim)) for part in self._qkv(x).split(self._sizes, dim=-1)
        )
        bias: Tensor | None = None
        if self._config.position == "rel_pos":
            key = expand_heads(key, self._config.heads)
            bias = (key * self._u).sum(-1, dtype=torch.float32) + positions.bias(layer)
            key = key + positions.projected(layer)
        elif self._config.position == "rope_pos":
            cosine, sine = positions.rotation()
            query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        return self._out(memory.attend(layer, query, key, value, bias), residual)


def expand_heads(x: Tensor, heads: int) -> Tensor:
    """`x` [B, n, few heads, d] with every head repeated for the query heads that share it: [B, n, heads, d]."""
    return x if x.shape[-2] == heads else x.repeat_interleave(heads // x.shape[-2], dim=-2)


def scaled_dot_product(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """`query` [B, n, heads, d], `key`, `value` [B, t, its heads, d], `bias` [B, heads or 1, 1 or n, t] float32,
    whatever the dtype of the rest, or None.

    Returns [B, n, heads * d].
    """
    heads = query.shape[2]
    if bias is not None and query.is_cuda and bias.dtype != query.dtype:
        # CUDA kernels take a bias of the query's dtype only; clamped, because MASKED is infinite in float16.
        bias = bias.clamp_min(torch.finfo(query.dtype).min).to(query.dtype)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        expand_heads(key, heads).transpose(1, 2),
        expand_heads(value, heads).transpose(1, 2),
        attn_mask=bias,
    )
    return out.transpose(1, 2).flatten(2)
