"""The extent of tokens."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.words import token_spans


@pytest.mark.parametrize(
    ("peaks", "spans"),
    [
        ([], []),
        ([0], [(0, 1)]),
        ([3], [(0, 4)]),
        ([5], [(0, 6)]),
        ([40], [(35, 41)]),
        ([4, 5, 9], [(0, 5), (5, 6), (6, 10)]),
        ([10, 16, 40], [(5, 11), (11, 17), (35, 41)]),
    ],
)
def test_a_token_ends_at_its_peak_and_leads_by_at_most_five_frames(
    peaks: list[int], spans: list[tuple[int, int]]
) -> None:
    assert token_spans(peaks) == spans


@given(st.sets(st.integers(0, 300), max_size=40))
def test_spans_hold_their_peaks_and_do_not_overlap(peaks: set[int]) -> None:
    ordered = sorted(peaks)
    spans = token_spans(ordered)
    for peak, (start, end) in zip(ordered, spans, strict=True):
        assert 0 <= start <= peak == end - 1
        assert end - start <= 6
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
