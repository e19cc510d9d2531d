"""The shapes a step may run at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.graphs.ladder import cache_ladder, pick, width_ladder
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
