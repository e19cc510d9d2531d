"""One stream at a time over tensors of its own: slow and plain, the oracle that the paged runtime is tested against."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from oasr_backend.cache.slots import SlotPool
from oasr_backend.config import ResolvedConfig
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import RuntimeUsage, StreamingRuntime, register_streaming_runtime
from oasr_backend.layers.attention import scaled_dot_product
from oasr_backend.layers.convolution import pad_centred
from oasr_backend.models.base import AsrModel


@dataclass
class DenseState:
    """Per layer: keys, values [1, t, heads, d], key bias [1, t, heads] and convolution history [1, K - 1, dim]."""

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    bias: dict[int, Tensor] = field(default_factory=dict)
    history: dict[int, Tensor] = field(default_factory=dict)


class DenseMemory:
    """The history of one stream during one step; keeps `keep` frames after it, all when negative."""

    def __init__(self, state: DenseState, fresh: Tensor | None, keep: int, device: torch.device):
        self._state = state
        self._fresh = fresh
        self._keep = keep
        self._device = device

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, key_bias: Tensor | None) -> Tensor:
        state = self._state
        keys = self._grow(state.keys, layer, key)
        values = self._grow(state.values, layer, value)
        if key_bias is None:
            return scaled_dot_product(query, keys, values, query.new_zeros(1, 1, 1, keys.shape[1], dtype=torch.float32))
        bias = self._grow(state.bias, layer, key_bias)
        return scaled_dot_product(query, keys, values, bias.transpose(1, 2)[:, :, None, :])

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        if not causal:
            return pad_centred(gated, torch.tensor([gated.shape[1]], device=self._device), kernel)
        if layer not in self._state.history:
            assert self._fresh is not None
            self._state.history[layer] = self._fresh[layer].expand(1, kernel - 1, -1)
        extended = torch.cat((self._state.history[layer], gated), dim=1)
        self._state.history[layer] = extended[:, extended.shape[1] - (kernel - 1) :]
        return extended

    def kept(self, x: Tensor) -> Tensor:
        return x

    def _grow(self, held: dict[int, Tensor], layer: int, new: Tensor) -> Tensor:
        whole = torch.cat((held[layer], new), dim=1) if layer in held else new
        kept = whole if self._keep < 0 else whole[:, max(0, whole.shape[1] - self._keep) :]
        held[layer] = kept
        return whole


@register_streaming_runtime("dense")
class DenseRuntime(StreamingRuntime):
    """No pages, no ceiling, no batch."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._device = config.device
        self._slots = SlotPool(config.max_batch_size)
        self._states: dict[int, DenseState] = {}

    def allocate(self, request: Request) -> None:
        request.slot = self._slots.take()
        self._states[request.slot] = DenseState()

    def free(self, request: Request) -> None:
        slot, request.slot = request.slot, None
        if slot is not None:
            del self._states[slot]
            self._slots.give_back(slot)

    def restart(self, request: Request) -> None:
        assert request.slot is not None
        self._states[request.slot] = DenseState()
        request.offset = 0

    def reserve(self, request: Request, frames: int) -> bool:
        return True

    def forward(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> Tensor:
        width = self._model.geometry.frames_out(features.shape[1])
        rows = []
        for row, (request, count) in enumerate(zip(requests, frames, strict=True)):
            assert request.slot is not None
            keep = request.num_left_chunks * request.chunk_size if request.num_left_chunks >= 0 else -1
            memory = DenseMemory(self._states[request.slot], self._model.fresh_convolution_history, keep, self._device)
            positions = torch.arange(request.offset, request.offset + count, device=self._device)[None, :]
            window = features[row : row + 1, : self._model.geometry.window(count)]
            hidden = self._model.encode_chunk(window, positions, memory)
            rows.append(torch.nn.functional.pad(hidden, (0, 0, 0, width - count)))
        return torch.cat(rows)

    @property
    def usage(self) -> RuntimeUsage:
        return RuntimeUsage(self._slots.free_slots, 0, 0)
