"""The history of an offline pass: the clip itself."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oasr_backend.layers.attention import MASKED, scaled_dot_product
from oasr_backend.layers.convolution import pad_centred
from oasr_backend.utils.staging import to_device


def chunk_visibility(frames: int, chunk: int, left_chunks: int, device: torch.device) -> Tensor:
    """Which keys a frame sees when decoding by chunks: [frames, frames] bool, query by key.

    A frame sees its own chunk whole, and `left_chunks` chunks before it (all of them when negative).
    """
    index = torch.arange(frames, device=device) // chunk
    query, key = index[:, None], index[None, :]
    visible = key <= query
    if left_chunks >= 0:
        visible &= key >= query - left_chunks
    return visible


class PackedMemory:
    """Clips in one row: attention within each, and a convolution history of its own before (and behind) each."""

    def __init__(self, lengths: Sequence[int], fresh_history: Tensor | None, device: torch.device):
        """`lengths` frames of each clip, `fresh_history` [layers, dim]."""
        self._lengths = list(lengths)
        self._fresh = fresh_history
        self._device = device
        self._layout: tuple[Tensor, Tensor] | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> Tensor:
        parts = []
        split = (x.split(self._lengths, dim=1) for x in (query, key, value))
        biases = [None] * len(self._lengths) if key_bias is None else key_bias.split(self._lengths, dim=1)
        for q, k, v, bias in zip(*split, biases, strict=True):
            if bias is None:
                additive = q.new_zeros(1, 1, 1, k.shape[1], dtype=torch.float32)
            else:
                additive = bias.transpose(1, 2)[:, :, None, :]
            parts.append(scaled_dot_product(q, k, v, additive))
        return torch.cat(parts, dim=1)

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        sources, _ = self._around(kernel, causal)
        if causal:
            assert self._fresh is not None
            fill = self._fresh[layer][None, None, :].to(gated.dtype)
        else:
            fill = gated.new_zeros(1, 1, gated.shape[2])
        return torch.cat((fill, gated), dim=1).index_select(1, sources)

    def kept(self, x: Tensor) -> Tensor:
        assert self._layout is not None
        return x.index_select(1, self._layout[1])

    def _around(self, kernel: int, causal: bool) -> tuple[Tensor, Tensor]:
        """Which frame (0: the filling) stands where in the extended row, and which convolved frames are clips'."""
        if self._layout is None:
            before = kernel - 1 if causal else (kernel - 1) // 2
            sources: list[int] = []
            kept: list[int] = []
            done = 0
            for length in self._lengths:
                kept += range(len(sources), len(sources) + length)
                sources += [0] * before
                sources += range(done + 1, done + length + 1)
                sources += [0] * (kernel - 1 - before)
                done += length
            into, out = (to_device(np.array(index, dtype=np.int64), self._device) for index in (sources, kept))
            self._layout = into, out
        return self._layout


class ClipMemory:
    """Attention over a padded batch of whole clips, and fresh convolution histories before them."""

    def __init__(self, lengths: Tensor, frames: int, fresh_history: Tensor | None, visible: Tensor | None = None):
        """`lengths` [B] valid frames, `fresh_history` [layers, dim], `visible` [frames, frames] bool, None for all."""
        padding = torch.arange(frames, device=lengths.device)[None, :] >= lengths[:, None]
        self._mask = padding[:, None, None, :] * MASKED
        if visible is not None:
            self._mask = self._mask + ~visible * MASKED
        self._lengths = lengths
        self._fresh = fresh_history

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> Tensor:
        if key_bias is None:
            return scaled_dot_product(query, key, value, self._mask)
        return scaled_dot_product(query, key, value, key_bias.transpose(1, 2)[:, :, None, :] + self._mask)

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        if not causal:
            return pad_centred(gated, self._lengths, kernel)
        assert self._fresh is not None
        fresh = self._fresh[layer].expand(gated.shape[0], kernel - 1, -1)
        return torch.cat((fresh, gated), dim=1)

    def kept(self, x: Tensor) -> Tensor:
        return x
