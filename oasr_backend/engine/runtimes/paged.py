"""All streams in one forward over shared pages."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.cache.history import HistoryPolicy
from oasr_backend.cache.slots import SlotPool
from oasr_backend.cache.stream_memory import StreamMemory
from oasr_backend.config import ResolvedConfig, device_memory_bytes
from oasr_backend.engine.memory import size_pool
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import RuntimeUsage, StreamingRuntime, register_streaming_runtime
from oasr_backend.graphs.ladder import pick, width_ladder
from oasr_backend.models.base import AsrModel


@register_streaming_runtime("paged")
class PagedRuntime(StreamingRuntime):
    """Slots, pages and convolution histories in tensors that are allocated once."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        spec, slots = model.cache_spec, config.max_batch_size
        size = size_pool(
            streams=slots,
            chunk=config.chunk_size,
            left_chunks=config.num_left_chunks,
            block_size=config.block_size_frames,
            max_blocks_per_seq=config.max_blocks_per_seq,
            max_num_blocks=config.max_num_blocks,
            bytes_per_block=spec.bytes_per_block(config.block_size_frames, config.dtype.itemsize),
            memory_budget=int(device_memory_bytes(config.device) * config.cache_memory_share),
        )
        policy = HistoryPolicy(config.block_size_frames, size.blocks_per_stream, config.recycle_streaming_history)
        self.slots = SlotPool(slots)
        self.attention = AttentionCache(spec, size.num_blocks, policy, slots, config.device, config.dtype)
        self.convolution = ConvolutionCache(model.fresh_convolution_history, spec.convolution_history, slots)
        self._widths = width_ladder(slots, config.pad_batch)
        # On CPU the cache ladder steps by one block.
        self._block_ladder = tuple(range(1, policy.max_blocks + 1))

    def allocate(self, request: Request) -> None:
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

    def reserve(self, request: Request, frames: int) -> bool:
        assert request.slot is not None
        return self.attention.reserve(request.slot, request.offset, frames, request.chunk_size, request.num_left_chunks)

    def forward(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> Tensor:
        first = requests[0]
        width = pick(self._widths, len(requests))
        if width > len(requests):
            features = torch.nn.functional.pad(features, (0, 0, 0, 0, 0, width - len(requests)))
        plan = self.attention.plan(
            [request.slot for request in requests if request.slot is not None],
            [request.offset for request in requests],
            frames,
            first.chunk_size,
            first.num_left_chunks,
            self._model.geometry.frames_out(features.shape[1]),
            width,
            self._block_ladder,
        )
        memory = StreamMemory(self.attention, self.convolution, plan)
        return self._model.encode_chunk(features, plan.positions, memory)[: len(requests)]

    @property
    def usage(self) -> RuntimeUsage:
        pool = self.attention.pool
        return RuntimeUsage(self.slots.free_slots, pool.used_blocks, pool.num_blocks)
