"""How an offline batch is chosen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.engine.batching import POLICIES, BatchLimits, fcfs


@pytest.mark.parametrize(
    ("costs", "rows", "frames", "chosen"),
    [
        ([], 4, 100, []),
        ([10, 10, 10], 2, 100, [0, 1]),
        ([10, 10, 10], 4, 20, [0, 1]),
        ([500], 4, 100, [0]),
        ([500, 1], 4, 100, [0]),
        ([10, 60, 10], 4, 100, [0]),
        ([50, 10, 10], 4, 100, [0, 1]),
        ([0, 0, 0], 4, 1, [0, 1, 2]),
    ],
)
def test_the_oldest_go_as_far_as_their_padding_fits(
    costs: list[int], rows: int, frames: int, chosen: list[int]
) -> None:
    assert fcfs(costs, BatchLimits(rows, frames)) == chosen


@given(st.lists(st.integers(0, 500), min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 2000))
def test_a_batch_is_a_prefix_within_its_limits(costs: list[int], rows: int, frames: int) -> None:
    chosen = fcfs(costs, BatchLimits(rows, frames))
    assert chosen == list(range(len(chosen)))
    assert 1 <= len(chosen) <= rows
    if len(chosen) > 1:
        assert max(costs[: len(chosen)]) * len(chosen) <= frames
    if len(chosen) < min(rows, len(costs)):
        assert max(costs[: len(chosen) + 1]) * (len(chosen) + 1) > frames


def test_the_policy_is_registered_by_name() -> None:
    assert POLICIES["fcfs"] is fcfs
