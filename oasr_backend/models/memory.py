"""The history of an offline pass: the clip itself."""

import torch
from torch import Tensor

from oasr_backend.layers.attention import MASKED, scaled_dot_product
from oasr_backend.layers.convolution import pad_centred


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
