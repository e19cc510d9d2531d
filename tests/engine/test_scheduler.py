"""Who goes next."""

import pytest

from oasr_backend.engine.batching import BatchLimits
from oasr_backend.engine.request import Request, RequestState
from oasr_backend.engine.scheduler import Scheduler


def make(max_running: int = 2, max_rows: int = 3, max_frames: int = 1000) -> Scheduler:
    return Scheduler(max_running, BatchLimits(max_rows, max_frames), "fcfs", lambda request: request.samples_received)


def request(name: str, streaming: bool = True, priority: int = 0, cost: int = 10) -> Request:
    return Request(name, streaming, priority, samples_received=cost)


def names(requests: tuple[Request, ...]) -> list[str]:
    return [request.request_id for request in requests]


def test_streams_start_in_order_while_there_are_places() -> None:
    scheduler = make()
    for name in "abc":
        scheduler.add(request(name))
    assert scheduler.free_places == 0
    plan = scheduler.schedule()
    assert names(plan.admitted) == names(plan.running) == ["a", "b"]
    assert (scheduler.num_running, scheduler.num_waiting) == (2, 1)
    assert not scheduler.schedule().admitted
    scheduler.remove(plan.running[0])
    assert names(scheduler.schedule().admitted) == ["c"]


def test_offline_batches_leave_the_index() -> None:
    scheduler = make()
    for index in range(1000):
        scheduler.add(request(str(index), streaming=False))
    taken: list[str] = []
    while batch := scheduler.schedule().offline_batch:
        assert len(batch) <= 3
        taken += names(batch)
    assert taken == [str(index) for index in range(1000)]
    assert scheduler.everything() == () and scheduler.num_waiting == 0


@pytest.mark.parametrize("streaming", [True, False])
def test_lower_priorities_go_first_and_equal_ones_in_order(streaming: bool) -> None:
    scheduler = make(max_running=10, max_rows=10)
    for name, priority in [("a", 5), ("b", 5), ("c", 0), ("d", -1), ("e", 0)]:
        scheduler.add(request(name, streaming, priority))
    plan = scheduler.schedule()
    assert names(plan.admitted if streaming else plan.offline_batch) == ["d", "c", "e", "a", "b"]


def test_an_id_may_be_used_again_but_not_twice_at_once() -> None:
    scheduler = make()
    first = request("a")
    scheduler.add(first)
    with pytest.raises(ValueError, match="'a' is in use"):
        scheduler.add(request("a", streaming=False))
    scheduler.remove(first)
    assert first.state is RequestState.FINISHED
    scheduler.add(request("a", streaming=False))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_waiting_request_can_be_taken_out(streaming: bool) -> None:
    scheduler = make()
    kept, dropped = request("a", streaming), request("b", streaming)
    scheduler.add(kept)
    scheduler.add(dropped)
    scheduler.remove(dropped)
    assert scheduler.find("b") is None and scheduler.find("a") is kept
    assert scheduler.num_waiting == 1


def test_removing_twice_does_no_harm() -> None:
    scheduler = make()
    stream = request("a")
    scheduler.add(stream)
    scheduler.schedule()
    scheduler.remove(stream)
    scheduler.remove(stream)
    assert (scheduler.num_running, scheduler.num_waiting, scheduler.everything()) == (0, 0, ())


def test_padded_frames_bound_an_offline_batch() -> None:
    scheduler = make(max_rows=10, max_frames=100)
    for name, cost in [("a", 40), ("b", 50), ("c", 60)]:
        scheduler.add(request(name, False, cost=cost))
    assert names(scheduler.schedule().offline_batch) == ["a", "b"]
    assert names(scheduler.schedule().offline_batch) == ["c"]
