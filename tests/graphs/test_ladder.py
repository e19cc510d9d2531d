"""The shapes a step may run at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.graphs.ladder import (
    OfflineShape,
    OfflineShapes,
    batch_buckets,
    block_ladder,
    cache_ladder,
    pads_widths,
    pick,
    prewarm_shapes,
    width_ladder,
)
from tests.golden.rules import cache_ladders, padded_shapes, width_ladders


@pytest.mark.parametrize(("capacity", "rungs"), cache_ladders())
def test_cache_rungs_are_those_recorded(capacity: int, rungs: tuple[int, ...]) -> None:
    assert cache_ladder(capacity) == rungs


@pytest.mark.parametrize(("cap", "widths"), list(zip([1, 6, 32, 64], width_ladders(), strict=True)))
def test_widths_are_those_recorded(cap: int, widths: tuple[int, ...]) -> None:
    assert width_ladder(cap, pad=True) == widths


def test_padding_widths_divides_the_number_of_shapes() -> None:
    padded, exact = padded_shapes()
    rungs = len(cache_ladder(512))
    assert len(width_ladder(64, pad=True)) * rungs == padded
    assert len(width_ladder(64, pad=False)) * rungs == exact


def test_without_padding_every_width_is_a_rung() -> None:
    assert width_ladder(5, pad=False) == (1, 2, 3, 4, 5)


def test_explicit_widths_end_at_the_cap() -> None:
    assert width_ladder(12, pad=True, explicit=(8, 2)) == (2, 8, 12)


def test_no_growth_means_equal_steps() -> None:
    assert cache_ladder(1024, growth=1.0) == tuple(range(0, 1025, 64))


@given(st.integers(0, 20000))
def test_cache_rungs_rise_in_tiles_and_stay_within_the_capacity(capacity: int) -> None:
    rungs = cache_ladder(capacity)
    assert list(rungs) == sorted(set(rungs))
    assert rungs[0] == 0 and rungs[-1] == capacity // 64 * 64
    assert all(rung % 64 == 0 for rung in rungs)


@given(st.integers(1, 200), st.booleans())
def test_every_batch_has_a_width(cap: int, pad: bool) -> None:
    widths = width_ladder(cap, pad)
    for active in range(1, cap + 1):
        width = pick(widths, active)
        assert active <= width <= cap
        assert width in widths
        assert not any(active <= narrower < width for narrower in widths)


@given(st.integers(0, 20000))
def test_a_value_past_the_ladder_is_rounded_up_to_a_tile(value: int) -> None:
    ladder = cache_ladder(2000)
    rung = pick(ladder, value, tile=64)
    assert rung >= value and rung % 64 == 0
    if value <= ladder[-1]:
        assert rung in ladder
    else:
        assert rung - value < 64


def test_preferred_widths_are_rungs() -> None:
    assert width_ladder(8, pad=True, preferred=(3, 6)) == (1, 2, 3, 4, 6, 8)
    assert width_ladder(8, pad=True, explicit=(4,), preferred=(6,)) == (4, 6, 8)


def test_blocks_hold_the_chunk_behind_each_rung() -> None:
    assert block_ladder(512, 16, 16) == (1, 5, 9, 13, 17, 21, 25, 29, 33, 49, 73, 109, 165, 249, 373, 512)
    assert len(block_ladder(512, 16, 16)) == len(cache_ladder(8192))
    # Four chunks of history.
    assert block_ladder(6, 16, 16) == (1, 6)
    assert block_ladder(1, 16, 16) == (1,)
    assert block_ladder(32, 8, 16) == (2, 10, 18, 32)


@given(st.integers(1, 600), st.integers(1, 40), st.integers(1, 64), st.floats(1, 3))
def test_block_rungs_rise_to_all_there_are(max_blocks: int, block_size: int, chunk: int, growth: float) -> None:
    ladder = block_ladder(max_blocks, block_size, chunk, growth)
    assert list(ladder) == sorted(set(ladder))
    assert ladder[0] >= 1 and ladder[-1] == max_blocks


@pytest.mark.parametrize(
    ("setting", "captures", "rungs", "pads"),
    [
        (None, True, 2, True),
        (None, True, 1, False),
        (None, False, 9, False),
        (True, False, 1, True),
        (False, True, 9, False),
    ],
)
def test_widths_are_padded_where_histories_grow(setting: bool | None, captures: bool, rungs: int, pads: bool) -> None:
    assert pads_widths(setting, captures, rungs) is pads


def test_all_shapes_are_warmed_when_they_fit() -> None:
    shapes = prewarm_shapes(width_ladder(64, pad=True), cache_ladder(512), 512)
    assert len(shapes) == 63 and shapes[0] == (64, 512) and shapes[-1] == (1, 0)


def test_past_the_budget_the_low_widths_and_the_widest_stay() -> None:
    rungs = cache_ladder(512)
    shapes = prewarm_shapes(width_ladder(64, pad=False), rungs, 512)
    assert len(shapes) == 56 * len(rungs)
    assert {width for width, _ in shapes} == {*range(1, 56), 64}
    assert prewarm_shapes((1, 2, 4), (1, 5, 9), 3) == ((4, 9), (4, 5), (4, 1))
    assert prewarm_shapes((1, 2, 4), (1, 5, 9), 2) == ((4, 5), (4, 1))


@given(st.integers(1, 70), st.integers(1, 20), st.integers(1, 600))
def test_no_more_shapes_than_the_budget_are_warmed(cap: int, rungs: int, budget: int) -> None:
    widths = width_ladder(cap, pad=False)
    shapes = prewarm_shapes(widths, range(rungs), budget)
    assert 0 < len(set(shapes)) == len(shapes) <= budget
    if len(widths) * rungs <= budget:
        assert len(shapes) == len(widths) * rungs


def test_batch_buckets_are_named_or_preferred_or_powers_of_two() -> None:
    assert batch_buckets(32, (4, 8), (16,)) == (4, 8)
    assert batch_buckets(32, None, (16, 20)) == (16, 20)
    assert batch_buckets(24) == (1, 2, 4, 8, 16, 24)


def test_offline_passes_are_padded_to_buckets() -> None:
    shapes = OfflineShapes((1, 2, 4, 8), granularity=64, max_frames=4096, max_area=20_000)
    assert shapes.of(3, 100) == OfflineShape(4, 128, True)
    assert shapes.of(4, 128) == OfflineShape(4, 128, True)
    # Too many rows, too long, too much of both: no row is added, and in time as little as ever.
    assert shapes.of(9, 100) == OfflineShape(9, 128, False)
    assert shapes.of(1, 4097) == OfflineShape(1, 4160, False)
    assert shapes.of(5, 3000) == OfflineShape(5, 3008, False)
    exact = OfflineShapes((8,), granularity=1, max_frames=4096, max_area=60_000)
    assert exact.of(8, 3001) == OfflineShape(8, 3001, True)


@given(st.integers(1, 64), st.integers(1, 6000), st.integers(1, 128))
def test_an_offline_shape_holds_its_pass(rows: int, frames: int, granularity: int) -> None:
    shape = OfflineShapes(batch_buckets(32), granularity, 4096, 60_000).of(rows, frames)
    assert shape.rows >= rows and frames <= shape.frames < frames + granularity
    if shape.is_captured:
        assert shape.frames <= 4096 and shape.rows * shape.frames <= 60_000 and shape.rows in batch_buckets(32)
    else:
        assert shape.rows == rows
