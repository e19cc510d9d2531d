"""Parts of a batch side by side."""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.utils.lanes import Lanes, shares


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 6))
def test_shares_hold_every_item_once_and_something_to_do(sizes: list[int], count: int) -> None:
    ranges = shares(sizes, count)
    assert [index for one in ranges for index in one] == list(range(len(sizes)))
    assert len(ranges) <= count
    assert all(sum(sizes[index] for index in one) > 0 for one in ranges) or len(ranges) == 1
    # No share is larger than an even one by more than an item.
    largest = max(sum(sizes[index] for index in one) for one in ranges)
    assert largest <= sum(sizes) / min(count, len(ranges)) + 2 * max(sizes)


def test_equal_items_are_shared_equally() -> None:
    assert [len(one) for one in shares([1] * 32, 2)] == [16, 16]
    assert [len(one) for one in shares([1] * 33, 4)] == [8, 9, 8, 8]
    assert shares([5, 0, 0], 3) == [range(3)]


def test_jobs_run_side_by_side_on_one_core_each_and_leave_the_others_alone() -> None:
    before = torch.get_num_threads()
    lanes = Lanes(2)
    meeting = threading.Barrier(2, timeout=60)

    def job() -> tuple[str, int, bool]:
        # Both are here at once, or this raises.
        meeting.wait()
        return threading.current_thread().name, torch.get_num_threads(), torch.is_inference_mode_enabled()

    (name, threads, infers), (other, *_) = lanes.run([job, job])
    assert name != other
    assert (threads, infers) == (1, True)
    assert torch.get_num_threads() == before
    fresh: list[int] = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert fresh == [before]


def test_one_job_or_one_lane_stays_on_its_thread() -> None:
    here = threading.current_thread().name
    assert Lanes(2).run([lambda: threading.current_thread().name]) == [here]
    assert Lanes(1).run([lambda: threading.current_thread().name] * 2) == [here] * 2


def test_an_error_is_raised_when_all_have_ended() -> None:
    ended = []

    def fail() -> None:
        raise ValueError("no")

    def last() -> None:
        time.sleep(0.05)
        ended.append(True)

    with pytest.raises(ValueError, match="no"):
        Lanes(2).run([fail, last])
    assert ended


def test_a_small_batch_is_not_shared() -> None:
    lanes = Lanes(2)
    assert [lanes.worth(frames) for frames in (0, 128, 255, 256, 10_000)] == [1, 1, 1, 2, 2]
