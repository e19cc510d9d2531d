"""How many pages the cache gets."""

from dataclasses import dataclass

from oasr_backend.cache.history import blocks_for, bounded_blocks
from oasr_backend.errors import ConfigError

# Pages a stream of unlimited history must at least have.
_MIN_UNLIMITED_BLOCKS = 8


@dataclass(frozen=True)
class PoolSize:
    """Pages in all, and the most that one stream may hold."""

    num_blocks: int
    blocks_per_stream: int


def size_pool(
    *,
    streams: int,
    chunk: int,
    left_chunks: int,
    block_size: int,
    max_blocks_per_seq: int,
    max_num_blocks: int | None,
    bytes_per_block: int,
    memory_budget: int,
) -> PoolSize:
    """Every stream gets an equal share, so that no stream can starve another.

    Raises ConfigError, with the arithmetic, when not even the least that serves fits.
    """
    bounded = left_chunks >= 0
    wanted = bounded_blocks(chunk, left_chunks, block_size) if bounded else max_blocks_per_seq
    # Whole pages are recycled, so beside a chunk there must be one more.
    one_chunk = blocks_for(chunk, block_size) + 1
    least = wanted if bounded else min(max_blocks_per_seq, max(_MIN_UNLIMITED_BLOCKS, one_chunk))
    total = max_num_blocks if max_num_blocks is not None else min(streams * wanted, memory_budget // bytes_per_block)
    per_stream = min(wanted, total // streams)
    if per_stream < least:
        source = (
            f"max_num_blocks {max_num_blocks}"
            if max_num_blocks is not None
            else f"a budget of {memory_budget} bytes at {bytes_per_block} bytes a page"
        )
        raise ConfigError(
            f"the cache needs {least} pages for each of {streams} streams and {source} gives {total} in all; "
            "lower max_batch_size or num_left_chunks, or raise max_num_blocks or cache_memory_share"
        )
    return PoolSize(per_stream * streams, per_stream)
