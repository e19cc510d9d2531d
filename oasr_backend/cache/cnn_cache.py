"""Convolution histories of all streams."""

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import ChunkPlan


class ConvolutionCache:
    """`[layers, slots + 1, K - 1, dim]`: the frames after the GLU that a causal convolution looks back on.

    Row `slots` is the padding lane.
    """

    def __init__(self, fresh: Tensor | None, history: int, slots: int):
        """`fresh` [layers, dim]: what every frame of a new stream's history holds; None for models without one."""
        self._history = history
        # Models without a history keep an empty one.
        self._fresh = torch.zeros(0, 1, 1, 0) if fresh is None else fresh[:, None, None, :]
        self._state = self._fresh.expand(-1, slots + 1, history, -1).clone()

    def reset(self, slot: int) -> None:
        self._state[:, slot] = self._fresh[:, 0]

    def extend(self, layer: int, plan: ChunkPlan, gated: Tensor) -> Tensor:
        """`gated` [W, n, dim] behind each row's history: [W, K - 1 + n, dim]; the history moves on."""
        state = self._state[layer]
        extended = torch.cat((state.index_select(0, plan.slots), gated), dim=1)
        if plan.full:
            tail = extended[:, extended.shape[1] - self._history :]
        else:
            last = plan.frames[:, None] + torch.arange(self._history, device=gated.device)
            tail = extended.gather(1, last[:, :, None].expand(-1, -1, extended.shape[2]))
        state.index_copy_(0, plan.slots, tail)
        return extended

    def read(self, slot: int, layer: int) -> Tensor:
        """A stream's history of a layer: [K - 1, dim]."""
        return self._state[layer, slot]
