"""Runs of frames in the pool, and when to read them there."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.cache.spans import reads_in_place, spans


@given(st.permutations(range(8)), st.integers(1, 5), st.integers(-3, 30), st.integers(1, 40))
def test_spans_hold_the_frames_in_order_and_are_as_few_as_can_be(
    pages: list[int], block: int, first: int, end: int
) -> None:
    end = min(end, len(pages) * block)
    found = spans(pages, first, end, block)
    rows = [row for low, high in found for row in range(low, high)]
    assert rows == [pages[frame // block] * block + frame % block for frame in range(max(0, first), end)]
    assert all(before[1] != after[0] for before, after in pairwise(found))


def test_neighbouring_pages_are_one_span() -> None:
    assert spans([3, 4, 5], 2, 11, 4) == ((14, 23),)
    assert spans([3, 5], 0, 8, 4) == ((12, 16), (20, 24))
    assert spans([3], 4, 4, 4) == ()


@pytest.mark.parametrize(
    ("visible", "padded", "expected"),
    [
        ([80], 80, True),
        ([80] * 8, 80, False),
        ([160] * 8, 160, False),
        ([1000] * 8, 1008, True),
        # One long history beside short ones.
        ([80] * 7 + [2000], 2000, True),
        ([16], 16, True),
        # A row of the padding lane sees nothing.
        ([2000, 0], 2000, False),
        ([], 16, False),
    ],
)
def test_long_and_unequal_histories_are_read_in_place(visible: list[int], padded: int, expected: bool) -> None:
    assert reads_in_place(visible, padded) is expected
