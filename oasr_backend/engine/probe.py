"""What a GPU has free and what its widest forward takes: run only where a capacity is left to derive."""

import logging
from collections.abc import Callable

import torch

from oasr_backend.cache.attention_cache import AttentionCache
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.cache.history import HistoryPolicy, blocks_for
from oasr_backend.cache.stream_memory import StreamMemory
from oasr_backend.config import ResolvedConfig
from oasr_backend.engine.memory import CacheGeometry, DeviceReading
from oasr_backend.models.base import AsrModel
from oasr_backend.models.config import WenetConfig

log = logging.getLogger(__name__)


def read_device(device: torch.device) -> DeviceReading:
    """What the driver says once blocks that nobody uses have gone back to it."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return DeviceReading(total, free)


def peak_bytes(forward: Callable[[], None], device: torch.device) -> int | None:
    """The most bytes that `forward` holds at once beside what was held before it; None when it fails."""
    try:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        forward()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    except Exception:
        # The pool can still be sized, only less closely.
        log.warning("the probe forward failed", exc_info=True)
        return None


@torch.inference_mode()
def widest_forward(model: AsrModel, geometry: CacheGeometry, config: ResolvedConfig) -> None:
    """One window of every stream at the longest history, and where clips are served the largest batch of them.

    Raises NotImplementedError for a model whose number of features is not known here.
    """
    if not isinstance(model.config, WenetConfig):
        raise NotImplementedError(f"architecture {model.config.architecture!r} says no number of features")
    bins, streams, chunk = model.config.encoder.input_dim, config.max_batch_size, config.chunk_size
    # Pages of the past are all the scratch block: they are read at full width and take no memory of their own.
    pages = blocks_for(chunk, geometry.block_size)
    policy = HistoryPolicy(geometry.block_size, max(pages, geometry.blocks_per_stream), recycle=False)
    attention = AttentionCache(model.cache_spec, streams * pages, policy, streams, config.device, config.dtype)
    convolution = ConvolutionCache(model.fresh_convolution_history, model.cache_spec.convolution_history, streams)
    slots = range(streams)
    for slot in slots:
        attention.reserve(slot, 0, chunk, chunk, geometry.left_chunks)
    plan = attention.plan(
        slots, [0] * streams, [chunk] * streams, chunk, geometry.left_chunks, chunk, streams, (policy.max_blocks,)
    )
    window = torch.zeros(streams, model.geometry.window(chunk), bins, device=config.device)
    model.encode_chunk(window, plan.positions, StreamMemory(attention, convolution, plan))
    if config.offline:
        frames = max(model.geometry.min_frames, config.max_batch_frames // streams)
        lengths = torch.full((streams,), model.geometry.frames_out(frames), device=config.device)
        model.encode_clips(torch.zeros(streams, frames, bins, device=config.device), lengths)
