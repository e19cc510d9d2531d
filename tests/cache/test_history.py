"""How much history a stream keeps."""

import math

from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.cache.history import HistoryPolicy, blocks_for, bounded_blocks

chunks, lefts, block_sizes = st.integers(1, 40), st.integers(0, 6), st.integers(1, 40)


@given(st.integers(0, 1000), block_sizes)
def test_blocks_round_up(frames: int, block: int) -> None:
    assert blocks_for(frames, block) == math.ceil(frames / block)


@given(chunks, lefts, block_sizes)
def test_bounded_history_may_straddle_one_block_more(chunk: int, left: int, block: int) -> None:
    assert bounded_blocks(chunk, left, block) == math.ceil((left + 1) * chunk / block) + 1


def test_visible_history() -> None:
    policy = HistoryPolicy(block_size=16, max_blocks=8, recycle=False)
    assert policy.visible_from(100, 16, -1) == 0
    assert policy.visible_from(100, 16, 0) == 100
    assert policy.visible_from(100, 16, 4) == 36
    assert policy.visible_from(30, 16, 4) == 0


@given(chunks, lefts, block_sizes, st.integers(1, 60))
def test_bounded_streams_hold_what_they_see_and_no_more(chunk: int, left: int, block: int, steps: int) -> None:
    bound = bounded_blocks(chunk, left, block)
    policy = HistoryPolicy(block, bound, recycle=False)
    base = held = 0
    for step in range(steps):
        offset = step * chunk
        drop = policy.droppable(base, held, offset, chunk, chunk, left)
        assert 0 <= drop <= held
        assert policy.fits(base, drop, offset, chunk)
        base += drop * block
        assert base <= policy.visible_from(offset, chunk, left) < base + block
        held = blocks_for(offset + chunk - base, block)
        assert held <= bound


@given(chunks, block_sizes, st.integers(1, 12), st.integers(1, 60), st.booleans())
def test_unlimited_streams_end_or_recycle_at_the_ceiling(
    chunk: int, block: int, max_blocks: int, steps: int, recycle: bool
) -> None:
    policy = HistoryPolicy(block, max_blocks, recycle)
    base = held = 0
    for step in range(steps):
        offset = step * chunk
        drop = policy.droppable(base, held, offset, chunk, chunk, -1)
        needed = blocks_for(offset + chunk - base, block)
        if not recycle:
            assert drop == 0
            assert policy.fits(base, drop, offset, chunk) == (needed <= max_blocks)
        elif needed <= max_blocks:
            assert drop == 0
        if not policy.fits(base, drop, offset, chunk):
            # With recycling only a chunk that is wider than the ceiling cannot be kept.
            assert not recycle or blocks_for(offset % block + chunk, block) > max_blocks
            return
        base += drop * block
        held = blocks_for(offset + chunk - base, block)
        assert held <= max_blocks
