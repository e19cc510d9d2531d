"""Keys, values and key biases of all pages."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.cache.spans import Span
from oasr_backend.models.config import CacheSpec
from oasr_backend.utils.buffers import lazy_zeros

History = tuple[Tensor, Tensor, Tensor | None]
"""Keys and values [B, frames, heads, d] of rows, and biases [B, heads, 1, frames] float32 where keys have any."""


class PageStore:
    """Pages side by side, head by head: frames of neighbouring pages are one matrix a head, which attention reads
    where it lies."""

    def __init__(self, spec: CacheSpec, pages: int, block: int, device: torch.device, dtype: torch.dtype):
        self._keys = lazy_zeros(spec.layers, spec.key_heads, pages, block, spec.head_dim, dtype=dtype, device=device)
        self._values = lazy_zeros(
            spec.layers, spec.value_heads, pages, block, spec.head_dim, dtype=dtype, device=device
        )
        self._bias = lazy_zeros(spec.layers, spec.bias_heads, pages, block, 1, dtype=torch.float32, device=device)
        self._has_bias = spec.bias_heads > 0

    def write(self, layer: int, rows: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> None:
        """New frames [W, n, heads, d] and biases [W, n, heads] to the `rows` [W * n] of the flat pool."""
        _write(self._keys[layer], rows, key)
        _write(self._values[layer], rows, value)
        if key_bias is not None:
            _write(self._bias[layer], rows, key_bias[..., None])

    def gathered(self, layer: int, pages: Tensor, width: int) -> History:
        """Copies of `pages` [width * P], in their order."""
        keys, values, bias = (
            pool[layer].index_select(1, pages).unflatten(1, (width, -1)).flatten(2, 3).permute(1, 2, 0, 3)
            for pool in (self._keys, self._values, self._bias)
        )
        return keys, values, bias.permute(0, 2, 3, 1) if self._has_bias else None

    def in_place(self, layer: int, spans: Sequence[Span]) -> History:
        """What lies in `spans`, one row: views where they are one run."""
        keys, values, bias = (_joined(pool[layer], spans) for pool in (self._keys, self._values, self._bias))
        return keys, values, bias.permute(0, 2, 3, 1) if self._has_bias else None


def _write(pool: Tensor, rows: Tensor, new: Tensor) -> None:
    pool.flatten(1, 2).index_copy_(1, rows, new.flatten(0, 1).transpose(0, 1).to(pool.dtype))


def _joined(pool: Tensor, spans: Sequence[Span]) -> Tensor:
    """`pool` [heads, pages, block, d] -> [1, frames, heads, d]."""
    flat = pool.flatten(1, 2)
    parts = [flat[:, first:end] for first, end in spans]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return whole.transpose(0, 1)[None]
