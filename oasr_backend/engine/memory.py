"""How many pages the cache gets: geometry, memory budget and pool, as plain arithmetic."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from oasr_backend.cache.history import blocks_for, bounded_blocks, window_blocks
from oasr_backend.errors import ConfigError

log = logging.getLogger(__name__)

# Pages a stream of unlimited history must at least have.
_MIN_UNLIMITED_BLOCKS = 8
# Least memory that is left for activations on a GPU.
_MIN_RESERVE = 256 << 20


@dataclass(frozen=True)
class CacheGeometry:
    """The shape of a stream's cache: pages of `block_size` encoder frames, at most `blocks_per_stream` of them."""

    block_size: int
    left_chunks: int
    """Chunks of history that a chunk sees; all when negative."""
    least_blocks: int
    """Pages without which a stream cannot be served."""
    blocks_per_stream: int
    trained_window: int | None
    """Frames of history that the model was trained for, where it was; they are seen exactly."""


def cache_geometry(
    *, chunk: int, left_chunks: int, block_size: int, max_blocks_per_seq: int, trained_window: int | None = None
) -> CacheGeometry:
    """The shape that a model and a configuration ask for.

    A trained window (encoder frames) is part of the model: it has pages of a chunk each, ceil(window / chunk) + 1 a
    stream, and neither `left_chunks` nor `block_size` counts. Raises ConfigError when the block table is too narrow
    for it.
    """
    if trained_window is not None:
        blocks = window_blocks(trained_window, chunk)
        if blocks > max_blocks_per_seq:
            raise ConfigError(
                f"the model's trained window of {trained_window} frames at chunk_size {chunk} needs {blocks} pages a "
                f"stream but max_blocks_per_seq is {max_blocks_per_seq}; raise it or chunk_size"
            )
        return CacheGeometry(chunk, blocks_for(trained_window, chunk), blocks, blocks, trained_window)
    if left_chunks >= 0:
        blocks = bounded_blocks(chunk, left_chunks, block_size)
        return CacheGeometry(block_size, left_chunks, blocks, blocks, None)
    # Whole pages are recycled, so beside a chunk there must be one more.
    one_chunk = blocks_for(chunk, block_size) + 1
    least = min(max_blocks_per_seq, max(_MIN_UNLIMITED_BLOCKS, one_chunk))
    return CacheGeometry(block_size, left_chunks, least, max_blocks_per_seq, None)


@dataclass(frozen=True)
class DeviceReading:
    """What the driver says of a GPU."""

    total_bytes: int
    free_bytes: int

    @property
    def resident_bytes(self) -> int:
        """Weights, CUDA context and whatever other processes hold."""
        return self.total_bytes - self.free_bytes


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes that the pages may take, the arithmetic behind them, and what to raise to get more."""

    available_bytes: int
    derivation: str
    lever: str


def host_budget(host_bytes: int, share: float) -> MemoryBudget:
    """A share of host memory; nothing is measured."""
    available = int(host_bytes * share)
    derivation = f"host memory {_size(host_bytes)} * cache_memory_share {share:g} = available {_size(available)}"
    return MemoryBudget(available, derivation, "cache_memory_share")


def gpu_budget(
    utilization: float, measure: Callable[[], DeviceReading], probe: Callable[[], int | None]
) -> MemoryBudget:
    """What is left on a GPU: total * utilization - resident - reserve, at least 0.

    The reserve is for activations: 1.5 times the peak bytes of a probe forward, or a quarter of total * utilization
    where `probe` returns None, and never below 256 MiB. `probe` goes first, so that the kernels and workspaces it
    loads are resident when `measure` reads.
    """
    peak = probe()
    reading = measure()
    cap = int(reading.total_bytes * utilization)
    if peak is None:
        wanted, source = cap // 4, f"a quarter of {cap} bytes, for the probe forward failed"
    else:
        wanted, source = -(-peak * 3 // 2), f"1.5 * the probe forward's {_size(peak)}"
    reserve = max(_MIN_RESERVE, wanted)
    available = max(0, cap - reading.resident_bytes - reserve)
    derivation = (
        f"total {_size(reading.total_bytes)} * gpu_memory_utilization {utilization:g} = {_size(cap)}, "
        f"less resident {_size(reading.resident_bytes)}, less reserve {_size(reserve)} ({source}, at least "
        f"{_size(_MIN_RESERVE)}) = available {_size(available)}"
    )
    return MemoryBudget(available, derivation, "gpu_memory_utilization")


@dataclass(frozen=True)
class PoolSize:
    """Pages in all, and the most that one stream may hold."""

    num_blocks: int
    blocks_per_stream: int


def size_pool(
    geometry: CacheGeometry,
    *,
    streams: int,
    bytes_per_block: int,
    max_num_blocks: int | None,
    budget: Callable[[], MemoryBudget],
) -> PoolSize:
    """Every stream gets an equal share, so that no stream can starve another; the derivation is logged.

    `budget` is asked only when `max_num_blocks` is None: the pool is then what the block table can address, or as
    many pages as fit. Raises ConfigError, with the arithmetic, when not even the least that serves fits.
    """
    least, most = streams * geometry.least_blocks, streams * geometry.blocks_per_stream
    if max_num_blocks is not None:
        pages, source, limit, lever = max_num_blocks, f"max_num_blocks {max_num_blocks}", "max_num_blocks", ""
    else:
        memory = budget()
        pages, limit, lever = memory.available_bytes // bytes_per_block, "memory", f"{memory.lever} or "
        source = f"{memory.derivation} // {bytes_per_block} bytes a page = {pages} pages"
    if pages < least:
        history = "" if geometry.trained_window is not None else ", keep less history (num_left_chunks)"
        raise ConfigError(
            f"the cache needs {geometry.least_blocks} pages for each of {streams} streams, {least} in all of "
            f"{_size(least * bytes_per_block)}, and there is room for {pages}: {source}; lower max_batch_size{history} "
            f"or raise {lever}max_num_blocks"
        )
    per_stream = min(geometry.blocks_per_stream, pages // streams)
    size = PoolSize(per_stream * streams, per_stream)
    log.info(
        "cache of %d pages, %d for each of %d streams, of %d frames and %s each, %s in all, limited by %s: least %d, "
        "most %d; %s",
        size.num_blocks,
        size.blocks_per_stream,
        streams,
        geometry.block_size,
        _size(bytes_per_block),
        _size(size.num_blocks * bytes_per_block),
        "the block table" if pages >= most else limit,
        least,
        most,
        source,
    )
    return size


def _size(count: int) -> str:
    """Bytes for people, then exactly."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.2f} {unit} ({count} bytes)"
    return f"{count} bytes"
