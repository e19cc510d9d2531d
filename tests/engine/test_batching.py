"""How an offline batch is chosen."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.engine.batching import POLICIES, BatchLimits, fcfs, frames, partition_policy
from oasr_backend.engine.request import Request
from oasr_backend.engine.scheduler import Scheduler
from oasr_backend.errors import ConfigError


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


def test_overdue_requests_go_first_whatever_their_priority() -> None:
    scheduler = Scheduler(4, BatchLimits(1, 10**6), "fcfs", lambda request: 1, max_wait_s=10.0)
    now = time.monotonic()
    for name, priority, age in (("new", -5, 0.0), ("old", 9, 20.0), ("oldest", 5, 30.0)):
        scheduler.add(Request(name, False, priority, arrival_time=now - age))
    order = [scheduler.schedule().offline_batch[0].request_id for _ in range(3)]
    assert order == ["oldest", "old", "new"]


@given(st.lists(st.integers(0, 500), max_size=20), st.integers(1, 6), st.integers(1, 1500))
def test_the_frames_partition_takes_every_clip_once_and_keeps_the_limits(
    costs: list[int], max_rows: int, max_frames: int
) -> None:
    parts = frames(costs, BatchLimits(max_rows, max_frames))
    assert sorted(index for part in parts for index in part) == list(range(len(costs)))
    for part in parts:
        assert 1 <= len(part) <= max_rows
        assert len(part) == 1 or max(costs[index] for index in part) * len(part) <= max_frames


def test_a_partition_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition_policy 'none' is not supported; choose one of: frames"):
        partition_policy("none")
