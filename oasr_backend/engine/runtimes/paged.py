"""All streams in one forward over shared pages."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.cache.history import UNLIMITED, HistoryPolicy
from oasr_backend.cache.slots import SlotPool
from oasr_backend.cache.stream_memory import StreamMemory
from oasr_backend.config import ResolvedConfig
from oasr_backend.engine.memory import (
    CacheGeometry,
    MemoryBudget,
    cache_geometry,
    gpu_budget,
    host_budget,
    size_pool,
)
from oasr_backend.engine.probe import peak_bytes, read_device, widest_forward
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import RuntimeUsage, StreamingRuntime, register_streaming_runtime
from oasr_backend.graphs.ladder import pick, width_ladder
from oasr_backend.models.base import AsrModel
from oasr_backend.models.config import CacheSpec
from oasr_backend.utils.host import memory_bytes

log = logging.getLogger(__name__)


@register_streaming_runtime("paged")
class PagedRuntime(StreamingRuntime):
    """Slots, pages and convolution histories in tensors that are allocated once."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        spec, slots = model.cache_spec, config.max_batch_size
        self._geometry = geometry = _geometry(spec, config)
        size = size_pool(
            geometry,
            streams=slots,
            bytes_per_block=spec.bytes_per_block(geometry.block_size, config.dtype.itemsize),
            max_num_blocks=config.max_num_blocks,
            budget=lambda: _budget(model, geometry, config),
        )
        policy = HistoryPolicy(geometry.block_size, size.blocks_per_stream, config.recycle_streaming_history)
        self.slots = SlotPool(slots)
        self.attention = AttentionCache(spec, size.num_blocks, policy, slots, config.device, config.dtype)
        self.convolution = ConvolutionCache(model.fresh_convolution_history, spec.convolution_history, slots)
        self._widths = width_ladder(slots, config.pad_batch, config.batch_ladder)
        # On CPU the cache ladder steps by one block.
        self._block_ladder = tuple(range(1, policy.max_blocks + 1))

    def allocate(self, request: Request) -> None:
        """Raises ValueError for a chunk size that the pages of a trained window do not fit."""
        if self._geometry.trained_window is not None and self._geometry.block_size % request.chunk_size:
            raise ValueError(
                f"chunk_size is {request.chunk_size} but a model with a trained window takes divisors of the engine's "
                f"chunk_size {self._geometry.block_size}; use one of them"
            )
        slot = self.slots.take()
        self.convolution.reset(slot)
        request.slot = slot

    def free(self, request: Request) -> None:
        slot, request.slot = request.slot, None
        if slot is None:
            return
        try:
            self.attention.free(slot)
        finally:
            self.slots.give_back(slot)

    def restart(self, request: Request) -> None:
        assert request.slot is not None
        self.attention.free(request.slot)
        self.convolution.reset(request.slot)
        request.offset = 0

    def reserve(self, request: Request, frames: int) -> bool:
        assert request.slot is not None
        return self.attention.reserve(request.slot, request.offset, frames, *self._history(request))

    def forward(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> Tensor:
        width = pick(self._widths, len(requests))
        if width > len(requests):
            features = torch.nn.functional.pad(features, (0, 0, 0, 0, 0, width - len(requests)))
        plan = self.attention.plan(
            [request.slot for request in requests if request.slot is not None],
            [request.offset for request in requests],
            frames,
            *self._history(requests[0]),
            self._model.geometry.frames_out(features.shape[1]),
            width,
            self._block_ladder,
        )
        memory = StreamMemory(self.attention, self.convolution, plan)
        return self._model.encode_chunk(features, plan.positions, memory)[: len(requests)]

    def _history(self, request: Request) -> tuple[int, int]:
        """What a chunk sees of the past: the length of a unit in frames, and how many units (all when negative)."""
        if self._geometry.trained_window is not None:
            return self._geometry.trained_window, 1
        return request.chunk_size, request.num_left_chunks

    @property
    def usage(self) -> RuntimeUsage:
        pool = self.attention.pool
        return RuntimeUsage(self.slots.free_slots, pool.used_blocks, pool.num_blocks)


def _geometry(spec: CacheSpec, config: ResolvedConfig) -> CacheGeometry:
    geometry = cache_geometry(
        chunk=config.chunk_size,
        left_chunks=config.num_left_chunks,
        block_size=config.block_size_frames,
        max_blocks_per_seq=config.max_blocks_per_seq,
        trained_window=spec.trained_window,
    )
    ignored = []
    if geometry.left_chunks != config.num_left_chunks and config.num_left_chunks != UNLIMITED:
        ignored.append(f"num_left_chunks {config.num_left_chunks}")
    if geometry.block_size != config.block_size_frames:
        ignored.append(f"block_size_frames {config.block_size_frames}")
    if ignored:
        log.warning(
            "the model was trained to see %d frames of history, in pages of a chunk each; ignored: %s",
            spec.trained_window,
            ", ".join(ignored),
        )
    return geometry


def _budget(model: AsrModel, geometry: CacheGeometry, config: ResolvedConfig) -> MemoryBudget:
    device = config.device
    if device.type != "cuda":
        return host_budget(memory_bytes(), config.cache_memory_share)
    return gpu_budget(
        config.gpu_memory_utilization,
        measure=lambda: read_device(device),
        probe=lambda: peak_bytes(lambda: widest_forward(model, geometry, config), device),
    )
