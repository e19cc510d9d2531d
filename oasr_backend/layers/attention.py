"""Multi-head self-attention with positions folded into the keys."""

from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.linear import Linear

# Finite, because fused kernels turn rows of -inf into NaN.
MASKED = -1e9


class AttentionMemory(Protocol):
    """Where keys and values live during a forward pass."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor) -> Tensor:
        """Adds the new keys to layer `layer` and attends over all it may see.

        `query`, `key`, `value` [B, n, heads, d]; `key_bias` [B, n, heads] float32, already divided by √d.
        Returns [B, n, heads * d].
        """


class RelativeSelfAttention:
    """Self-attention with WeNet's rel_pos, which has no relative shift.

    score(i, j) = ((q_i + u)·k_j + (q_i + v)·p_j) / √d, where p_j depends on the absolute position of key j alone, is
    q_i·(k_j + p_j) / √d + c_j with c_j = (u·k_j + v·p_j) / √d: plain attention over folded keys and a bias per key.
    (Dai et al. 2019 for u and v.)
    """

    def __init__(
        self,
        weights: WeightReader,
        name: str,
        dim: int,
        heads: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._heads = heads
        self._head_dim = dim // heads
        self._scale = self._head_dim**-0.5
        parts = ("linear_q", "linear_k", "linear_v")
        self._qkv = Linear(
            torch.cat([weights.take(f"{name}.{part}.weight", dim, dim) for part in parts]),
            torch.cat([weights.take(f"{name}.{part}.bias", dim) for part in parts]),
            device,
            dtype,
        )
        self._out = Linear(
            weights.take(f"{name}.linear_out.weight", dim, dim),
            weights.take(f"{name}.linear_out.bias", dim),
            device,
            dtype,
        )
        # float32: the bias is added to float32 scores.
        self._u = weights.take(f"{name}.pos_bias_u", heads, self._head_dim).to(device) * self._scale
        self._v = weights.take(f"{name}.pos_bias_v", heads, self._head_dim).to(device) * self._scale
        self.position_weight = weights.take(f"{name}.linear_pos.weight", dim, dim)

    def __call__(
        self, layer: int, normed: Tensor, residual: Tensor, position: Tensor, memory: AttentionMemory
    ) -> Tensor:
        """`normed`, `residual` [B, n, dim]; `position` [B or 1, n, dim], projected by this layer's position weight."""
        batch, frames, dim = normed.shape
        split = (batch, frames, self._heads, self._head_dim)
        query, key, value = (part.view(split) for part in self._qkv(normed).split(dim, dim=-1))
        place = position.view(position.shape[0], frames, self._heads, self._head_dim)
        bias = (key * self._u).sum(-1, dtype=torch.float32) + (place * self._v).sum(-1, dtype=torch.float32)
        return self._out(memory.attend(layer, query, key + place, value, bias), residual)


def scaled_dot_product(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """`query` [B, n, heads, d], `key`, `value` [B, t, heads, d], `bias` [B, heads, 1 or n, t] -> [B, n, heads * d]."""
    out = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_mask=bias
    )
    return out.transpose(1, 2).flatten(2)
