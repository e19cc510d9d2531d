"""The history of an offline pass: the clip itself."""

import torch
from torch import Tensor

from oasr_backend.layers.attention import MASKED, scaled_dot_product


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

    def __init__(
        self,
        lengths: Tensor,
        frames: int,
        fresh_history: Tensor,
        kernel: int,
        visible: Tensor | None = None,
    ):
        """`lengths` [B] valid frames, `fresh_history` [layers, dim], `visible` [frames, frames] bool, None for all."""
        padding = torch.arange(frames, device=lengths.device)[None, :] >= lengths[:, None]
        self._mask = padding[:, None, None, :] * MASKED
        if visible is not None:
            self._mask = self._mask + ~visible * MASKED
        self._fresh = fresh_history
        self._history = kernel - 1

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor) -> Tensor:
        return scaled_dot_product(query, key, value, key_bias.transpose(1, 2)[:, :, None, :] + self._mask)

    def extend(self, layer: int, gated: Tensor) -> Tensor:
        fresh = self._fresh[layer].expand(gated.shape[0], self._history, -1)
        return torch.cat((fresh, gated), dim=1)
