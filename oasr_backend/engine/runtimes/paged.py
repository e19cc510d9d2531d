"""All streams in one forward over shared pages."""

import logging
import time
from collections.abc import Mapping, Sequence

import numpy as np
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
from oasr_backend.graphs.cache import GraphCache
from oasr_backend.graphs.capture import CAPTURE_BACKENDS, captures_on
from oasr_backend.graphs.ladder import block_ladder, pads_widths, pick, prewarm_shapes, width_ladder
from oasr_backend.graphs.streaming import Step, StepInputs, StepShape, StreamingGraphs
from oasr_backend.models.base import AsrModel
from oasr_backend.models.config import CacheSpec
from oasr_backend.utils.host import memory_bytes
from oasr_backend.utils.ranges import Ranges

log = logging.getLogger(__name__)


@register_streaming_runtime("paged")
class PagedRuntime(StreamingRuntime):
    """Slots, pages and convolution histories in tensors that are allocated once."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._ranges = Ranges(config.nvtx, on_cuda=config.device.type == "cuda")
        spec, slots = model.cache_spec, config.max_batch_size
        self._geometry = geometry = geometry_of(spec, config)
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
        self._may_capture = captures_on(config.device)
        self._blocks = _blocks_read(geometry, policy, config)
        pad = pads_widths(config.pad_batch, config.use_cuda_graphs, len(self._blocks))
        preferred = config.preferred_batch_size if config.use_cuda_graphs else ()
        self._widths = width_ladder(slots, pad, config.batch_ladder, preferred)
        self._chunk_size, self._max_shapes = config.chunk_size, config.streaming_graph_max_shapes
        self._steps = StreamingGraphs(
            _step_of(model, self.attention, self.convolution, config.device.type == "cpu" and not self._may_capture),
            self.attention.idle,
            model.geometry.window,
            model.feature_dim or 0,
            config.device,
            GraphCache(
                CAPTURE_BACKENDS[config.device.type](config.device) if config.use_cuda_graphs else None,
                config.streaming_graph_max_shapes,
                is_supported=model.feature_dim is not None,
            ),
        )

    def prewarm(self) -> None:
        if self._steps.cache.backend is None:
            return
        planned = prewarm_shapes(self._widths, self._blocks, self._max_shapes)
        started = time.perf_counter()
        # Largest first: the smaller ones run in the memory of the larger.
        shapes = sorted((StepShape(blocks, width, self._chunk_size) for width, blocks in planned), reverse=True)
        made = self._steps.prewarm(shapes)
        log.info(
            "%d of %d shapes of streaming steps captured in %.1f s: widths %s, pages %s",
            made,
            len(self._widths) * len(self._blocks),
            time.perf_counter() - started,
            self._widths,
            self._blocks,
        )

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
        with self._ranges("batched_paged", len(requests)):
            with self._ranges("prepare_chunk"):
                shape, indices = self._prepared(requests, features.shape[1], frames)
            with self._ranges("encoder_call"):
                return self._steps.run(shape, indices, features)

    def _prepared(
        self, requests: Sequence[Request], window: int, frames: Sequence[int]
    ) -> tuple[StepShape, np.ndarray]:
        """The shape of a step, and where it reads and writes."""
        slots = [request.slot for request in requests if request.slot is not None]
        width, new_frames = pick(self._widths, len(requests)), self._model.geometry.frames_out(window)
        # A graph serves short chunks too, so where there may be one no step counts on whole ones.
        is_full = not self._may_capture and all(count == new_frames for count in frames)
        shape = self.attention.shape(slots, new_frames, width, self._blocks, is_full)
        offsets = [request.offset for request in requests]
        return shape, self.attention.indices(slots, offsets, frames, *self._history(requests[0]), shape)

    def take_graph_counts(self) -> Mapping[str, int]:
        return self._steps.cache.take_counts()

    def _history(self, request: Request) -> tuple[int, int]:
        """What a chunk sees of the past: the length of a unit in frames, and how many units (all when negative)."""
        if self._geometry.trained_window is not None:
            return self._geometry.trained_window, 1
        return request.chunk_size, request.num_left_chunks

    @property
    def usage(self) -> RuntimeUsage:
        pool = self.attention.pool
        return RuntimeUsage(self.slots.free_slots, pool.used_blocks, pool.num_blocks, len(self._steps.cache))


def _step_of(
    model: AsrModel, attention: AttentionCache, convolution: ConvolutionCache, may_read_in_place: bool
) -> Step:
    """What is captured: the same device work whatever the inputs hold. No method, which would make a cycle."""

    def step(inputs: StepInputs, shape: StepShape) -> Tensor:
        plan = attention.unpacked(inputs.indices, shape, may_read_in_place)
        return model.encode_chunk(inputs.features, plan.positions, StreamMemory(attention, convolution, plan))

    return step


def geometry_of(spec: CacheSpec, config: ResolvedConfig) -> CacheGeometry:
    """The shape of a stream's cache. Raises ConfigError; warns of settings that a trained window overrides."""
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


def _blocks_read(geometry: CacheGeometry, policy: HistoryPolicy, config: ResolvedConfig) -> tuple[int, ...]:
    """Numbers of pages that a step may read."""
    if geometry.trained_window is not None and captures_on(config.device):
        return (policy.max_blocks,)
    if captures_on(config.device):
        growth = config.streaming_graph_cache_growth
        return block_ladder(policy.max_blocks, policy.block_size, config.chunk_size, growth)
    # On CPU the cache ladder steps by one block.
    return tuple(range(1, policy.max_blocks + 1))


def _budget(model: AsrModel, geometry: CacheGeometry, config: ResolvedConfig) -> MemoryBudget:
    device = config.device
    if device.type != "cuda":
        return host_budget(memory_bytes(), config.cache_memory_share)
    return gpu_budget(
        config.gpu_memory_utilization,
        measure=lambda: read_device(device),
        probe=lambda: peak_bytes(lambda: widest_forward(model, geometry, config), device),
    )
