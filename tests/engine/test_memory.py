"""How many pages the cache gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.cache.history import bounded_blocks
from oasr_backend.engine.memory import PoolSize, size_pool
from oasr_backend.errors import ConfigError


def size(**changes: Any) -> PoolSize:
    values: dict[str, Any] = {
        "streams": 4,
        "chunk": 16,
        "left_chunks": -1,
        "block_size": 16,
        "max_blocks_per_seq": 512,
        "max_num_blocks": None,
        "bytes_per_block": 1000,
        "memory_budget": 10**9,
    }
    return size_pool(**{**values, **changes})


def test_all_that_streams_can_address_when_memory_allows() -> None:
    assert size() == PoolSize(num_blocks=4 * 512, blocks_per_stream=512)


def test_a_bounded_history_needs_no_more_than_its_bound() -> None:
    assert size(left_chunks=4) == PoolSize(num_blocks=4 * 6, blocks_per_stream=6)


def test_memory_bounds_an_unlimited_history() -> None:
    assert size(memory_budget=41_999) == PoolSize(num_blocks=40, blocks_per_stream=10)


def test_an_explicit_pool_is_shared_equally() -> None:
    assert size(max_num_blocks=50) == PoolSize(num_blocks=48, blocks_per_stream=12)
    assert size(max_num_blocks=10_000) == PoolSize(num_blocks=4 * 512, blocks_per_stream=512)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"memory_budget": 31_000}, "needs 8 pages for each of 4 streams .* 31000 bytes at 1000 bytes a page gives 31"),
        ({"max_num_blocks": 31}, "needs 8 pages for each of 4 streams and max_num_blocks 31 gives 31"),
        ({"left_chunks": 4, "max_num_blocks": 23}, "needs 6 pages for each of 4 streams"),
        ({"left_chunks": 4, "memory_budget": 23_000}, "needs 6 pages for each of 4 streams"),
    ],
)
def test_too_little_is_refused_with_the_arithmetic(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        size(**changes)


@given(
    st.integers(1, 64),
    st.integers(1, 40),
    st.integers(-1, 8),
    st.integers(1, 40),
    st.integers(1, 600),
    st.integers(1, 5000),
)
def test_every_stream_has_its_share_or_nothing_is_built(
    streams: int, chunk: int, left: int, block: int, max_blocks: int, pool: int
) -> None:
    try:
        found = size(
            streams=streams,
            chunk=chunk,
            left_chunks=left,
            block_size=block,
            max_blocks_per_seq=max_blocks,
            max_num_blocks=pool,
        )
    except ConfigError:
        return
    assert found.num_blocks == found.blocks_per_stream * streams <= pool
    assert found.blocks_per_stream >= 1
    if left >= 0:
        assert found.blocks_per_stream == bounded_blocks(chunk, left, block)
    else:
        assert found.blocks_per_stream <= max_blocks
