"""How an offline batch is chosen."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.engine.batching import (
    POLICIES,
    BatchLimits,
    Candidate,
    admit_streams,
    batching_policy,
    best_run,
    choose_batch,
    fcfs,
    preferred_size,
    sjf,
    window,
)
from oasr_backend.engine.batching import bucket as bucket_policy
from oasr_backend.errors import ConfigError
from tests.golden.rules import chosen_runs, padding_of_the_mix

OVERDUE = float("-inf")


def candidates(lengths: list[int], ranks: list[int] | None = None, overdue: int = 0) -> list[Candidate]:
    """In order; the first `overdue` have waited too long."""
    ranks = ranks or [0] * len(lengths)
    return [
        Candidate(length, OVERDUE, True) if index < overdue else Candidate(length, rank)
        for index, (length, rank) in enumerate(zip(lengths, ranks, strict=True))
    ]


def test_recorded_runs() -> None:
    first, tight, loose = chosen_runs()
    assert best_run([500, 100, 510, 490, 1000, 120, 505, 480], BatchLimits(4)) == first
    assert sorted(first) == [0, 2, 3, 6]
    assert best_run([1000, 100, 110, 120], BatchLimits(4, max_pad_ratio=2.0)) == tight
    assert best_run([1000, 100, 110, 120], BatchLimits(4, max_pad_ratio=4.0)) == loose


def mixed_lengths() -> list[int]:
    """The mix that the recorded paddings were computed on."""
    rng = random.Random(0)
    return [max(150, min(1010, int(rng.gauss(650, 220)))) for _ in range(2048)]


def padding(policy: str, factor: int) -> float:
    """Frames with padding per frame without, over the whole mix in batches of 32."""
    limits = BatchLimits(32, window_factor=factor)
    waiting, padded, useful = mixed_lengths(), 0, 0
    while waiting:
        chosen = choose_batch(POLICIES[policy], map(Candidate, waiting), limits)
        batch = [waiting[index] for index in chosen]
        padded += max(batch) * len(batch)
        useful += sum(batch)
        waiting = [length for index, length in enumerate(waiting) if index not in set(chosen)]
    return padded / useful


def test_padding_of_the_recorded_mix() -> None:
    fifo, window4, window8 = padding_of_the_mix()
    assert round(padding("fcfs", 4), 3) == fifo == 1.558
    assert round(padding("window", 4), 3) == window4 <= 1.11
    assert round(padding("window", 8), 3) == window8


@pytest.mark.parametrize(
    ("lengths", "rows", "frames", "chosen"),
    [
        ([], 4, 100, []),
        ([10, 10, 10], 2, 100, [0, 1]),
        ([10, 10, 10], 4, 20, [0, 1]),
        ([500], 4, 100, [0]),
        ([500, 1], 4, 100, [0]),
        ([10, 60, 10], 4, 100, [0]),
        ([50, 10, 10], 4, 100, [0, 1]),
    ],
)
def test_first_come_goes_as_far_as_padding_fits(lengths: list[int], rows: int, frames: int, chosen: list[int]) -> None:
    assert fcfs(iter(candidates(lengths)), BatchLimits(rows, frames)) == chosen


@pytest.mark.parametrize("policy", ["fcfs", "bucket", "sjf"])
def test_a_forced_flush_takes_the_first_come_without_guards(policy: str) -> None:
    guarded = BatchLimits(3, max_frames=100, max_pad_ratio=1.2, min_length_ratio=0.9)
    waiting = candidates([90, 10, 500, 20], overdue=1)
    assert POLICIES[policy](iter(waiting), guarded) == [0, 1, 2]
    assert len(POLICIES[policy](iter(candidates([90, 10, 500, 20])), guarded)) < 3


def test_the_window_ships_its_anchor_even_when_nothing_suits_it() -> None:
    guarded = BatchLimits(3, max_pad_ratio=1.1)
    assert window(iter(candidates([1000, 10, 11])), guarded) == [0]
    assert window(iter(candidates([1000, 10, 11], overdue=1)), guarded) == [0]


def test_the_window_looks_at_the_anchors_rank_and_at_a_few_batches_only() -> None:
    waiting = candidates([100, 300, 100, 100], ranks=[0, 0, 1, 0])
    assert sorted(window(iter(waiting), BatchLimits(2))) == [0, 1]
    far = candidates([100, 200, 300, 400, 100])
    assert sorted(window(iter(far), BatchLimits(2, window_factor=2))) == [0, 1]
    assert sorted(window(iter(far), BatchLimits(2, window_factor=3))) == [0, 4]


@pytest.mark.parametrize(
    ("limits", "chosen"),
    [
        (BatchLimits(4), [0, 1, 2, 3]),
        (BatchLimits(4, min_length_ratio=0.8), [0, 2, 4]),
        (BatchLimits(4, max_frames=330), [0, 1, 2]),
        (BatchLimits(4, max_pad_ratio=1.1), [0, 2, 4]),
        (BatchLimits(2, min_length_ratio=0.8), [0, 2]),
    ],
)
def test_the_bucket_takes_what_suits_and_passes_over_the_rest(limits: BatchLimits, chosen: list[int]) -> None:
    assert bucket_policy(iter(candidates([100, 20, 110, 400, 95])), limits) == chosen


def test_shortest_first_within_a_rank() -> None:
    waiting = candidates([50, 40, 30, 10, 20], ranks=[0, 0, 0, 1, 1])
    assert sjf(iter(waiting), BatchLimits(4)) == [2, 1, 0, 3]


@pytest.mark.parametrize(("count", "cut"), [(0, 0), (1, 0), (2, 2), (3, 2), (7, 4), (8, 8), (40, 8)])
def test_preferred_sizes_cut_down(count: int, cut: int) -> None:
    assert preferred_size(count, (2, 4, 8)) == cut
    assert preferred_size(count, ()) == count


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_fewer_than_the_smallest_preferred_size_wait_unless_overdue(policy: str) -> None:
    limits = BatchLimits(8, preferred=(4, 8))
    assert choose_batch(POLICIES[policy], candidates([10, 10, 10]), limits) == []
    assert choose_batch(POLICIES[policy], candidates([10] * 5), limits) == [0, 1, 2, 3]
    assert choose_batch(POLICIES[policy], candidates([10, 10, 10], overdue=1), limits)[0] == 0
    assert choose_batch(POLICIES[policy], [], limits) == []


waiting_lists = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 2)), min_size=1, max_size=40)


@given(
    waiting_lists,
    st.sampled_from(sorted(POLICIES)),
    st.integers(1, 8),
    st.none() | st.integers(1, 3000),
    st.sampled_from([0.0, 1.0, 1.5, 4.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 3),
)
def test_every_batch_holds_the_most_urgent_and_keeps_its_limits(
    waiting: list[tuple[int, int]],
    policy: str,
    rows: int,
    frames: int | None,
    pad_ratio: float,
    length_ratio: float,
    overdue: int,
) -> None:
    waiting = sorted(waiting, key=lambda item: item[1])
    items = candidates([length for length, _ in waiting], [rank for _, rank in waiting], overdue)
    limits = BatchLimits(rows, frames, pad_ratio, length_ratio)
    chosen = choose_batch(POLICIES[policy], items, limits)
    assert chosen == sorted(set(chosen)) and 1 <= len(chosen) <= rows
    # Shortest first may pass over the first until it is overdue, but never over its rank.
    assert (0 in chosen) or (policy == "sjf" and not overdue and items[chosen[0]].rank == items[0].rank)
    lengths = [items[index].frames for index in chosen]
    if len(chosen) > 1 and (policy == "window" or (not overdue and policy != "fcfs")):
        assert limits.allow(len(chosen), min(lengths), max(lengths), sum(lengths))


@pytest.mark.parametrize(
    ("lengths", "ranks", "overdue", "running", "preferred", "by_length", "admitted"),
    [
        ([30, 10, 20], None, 0, 1, (), True, [1, 2]),
        ([30, 10, 20], None, 0, 1, (), False, [0, 1]),
        ([30, 10, 20], None, 1, 1, (), True, [0, 1]),
        ([10, 20, 5], [0, 0, 1], 0, 0, (), True, [0, 1, 2]),
        ([10, 10, 10], None, 0, 3, (), True, []),
        ([10, 10, 10], None, 0, 0, (2,), True, [0, 1]),
        ([10, 10, 10], None, 0, 1, (2,), True, [0]),
        ([10], None, 0, 0, (2,), True, []),
        ([10], None, 1, 0, (2,), True, [0]),
        ([10], None, 0, 2, (2,), True, []),
        ([10], None, 0, 9, (), True, []),
    ],
)
def test_admission_of_streams(
    lengths: list[int],
    ranks: list[int] | None,
    overdue: int,
    running: int,
    preferred: tuple[int, ...],
    by_length: bool,
    admitted: list[int],
) -> None:
    assert admit_streams(candidates(lengths, ranks, overdue), running, 3, preferred, by_length) == admitted


def test_a_policy_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigError, match="schedule_policy 'none' is not supported; choose one of: bucket, fcfs, sjf"):
        batching_policy("none")
