"""Who goes next."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oasr_backend.engine.batching import POLICIES, BatchLimits
from oasr_backend.engine.request import Request, RequestState
from oasr_backend.engine.scheduler import Scheduler, SchedulerOutput

MAX_WAIT_S = 10.0


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def make(
    max_running: int = 2,
    limits: BatchLimits = BatchLimits(3, 1000),  # noqa: B008 (frozen)
    policy: str = "fcfs",
    clock: Clock | None = None,
    max_wait_s: float = MAX_WAIT_S,
    cohort_admit: bool = True,
) -> Scheduler:
    return Scheduler(
        max_running,
        limits,
        policy,
        lambda request: request.samples_received,
        max_wait_s,
        cohort_admit,
        clock or Clock(),
    )


def request(name: str, streaming: bool = True, priority: int = 0, length: int = 10) -> Request:
    return Request(name, streaming, priority, samples_received=length)


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
    assert not scheduler.can_admit
    assert not scheduler.schedule().admitted
    scheduler.remove(plan.running[0])
    assert scheduler.can_admit
    (third,) = scheduler.schedule().admitted
    assert (third.request_id, third.stream_id, third.state) == ("c", 2, RequestState.RUNNING)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_offline_batches_leave_the_index(policy: str) -> None:
    scheduler = make(policy=policy)
    for index in range(1000):
        scheduler.add(request(str(index), streaming=False, length=index % 7))
    taken: list[str] = []
    while batch := scheduler.schedule().offline_batch:
        assert len(batch) <= 3
        taken += names(batch)
    assert sorted(taken, key=int) == [str(index) for index in range(1000)]
    assert scheduler.everything() == scheduler.waiting() == () and scheduler.num_waiting == 0


@pytest.mark.parametrize("policy", ["fcfs", "bucket", "sjf"])
@pytest.mark.parametrize("streaming", [True, False])
def test_lower_priorities_go_first_and_equal_ones_in_order(streaming: bool, policy: str) -> None:
    scheduler = make(10, BatchLimits(10), policy)
    for name, priority in [("a", 5), ("b", 5), ("c", 0), ("d", -1), ("e", 0)]:
        scheduler.add(request(name, streaming, priority))
    plan = scheduler.schedule()
    assert names(plan.admitted if streaming else plan.offline_batch) == ["d", "c", "e", "a", "b"]


def test_a_window_is_of_one_priority() -> None:
    scheduler = make(10, BatchLimits(10), "window")
    for name, priority in [("a", 5), ("b", 5), ("c", 0), ("d", -1), ("e", 0)]:
        scheduler.add(request(name, False, priority))
    assert [names(scheduler.schedule().offline_batch) for _ in range(4)] == [["d"], ["c", "e"], ["a", "b"], []]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_overdue_requests_go_first_whatever_their_priority(policy: str) -> None:
    clock = Clock()
    scheduler = make(limits=BatchLimits(1), policy=policy, clock=clock)
    for name, priority, age in (("oldest", 9, 30.0), ("old", 5, 10.0), ("new", -5, 9.0)):
        clock.now = 1000 - age
        scheduler.add(request(name, False, priority))
    clock.now = 1000.0
    assert [names(scheduler.schedule().offline_batch) for _ in range(3)] == [["oldest"], ["old"], ["new"]]


def test_shorter_streams_start_first_but_overdue_ones_before_them() -> None:
    clock = Clock()
    scheduler = make(1, clock=clock)
    scheduler.add(request("long", length=90))
    clock.now += 1
    scheduler.add(request("short", length=10))
    assert names(scheduler.schedule().admitted) == ["short"]
    scheduler.remove(scheduler.running()[0])
    scheduler.add(request("shorter", length=5))
    clock.now += MAX_WAIT_S - 1
    assert names(scheduler.schedule().admitted) == ["long"]


def test_streams_start_as_they_come_without_the_cohort_sort() -> None:
    scheduler = make(1, cohort_admit=False)
    for name, length in (("long", 90), ("short", 10)):
        scheduler.add(request(name, length=length))
    assert names(scheduler.schedule().admitted) == ["long"]


def test_too_few_for_a_preferred_size_wait_until_the_oldest_is_overdue() -> None:
    clock = Clock()
    scheduler = make(limits=BatchLimits(8, preferred=(2, 4)), clock=clock)
    scheduler.add(request("a", False))
    assert scheduler.can_admit
    assert scheduler.schedule().offline_batch == ()
    assert not scheduler.can_admit and scheduler.is_holding
    assert scheduler.seconds_held == MAX_WAIT_S
    scheduler.add(request("b", False))
    assert scheduler.can_admit and scheduler.seconds_held == math.inf
    assert names(scheduler.schedule().offline_batch) == ["a", "b"]
    scheduler.add(request("c", False))
    assert scheduler.schedule().offline_batch == ()
    clock.now += MAX_WAIT_S
    assert scheduler.can_admit and not scheduler.is_holding
    assert names(scheduler.schedule().offline_batch) == ["c"]
    scheduler.add(request("d", False))
    scheduler.add(request("s"))
    assert scheduler.schedule() == SchedulerOutput((), (), ())
    plan = scheduler.schedule(flush=True)
    assert (names(plan.offline_batch), names(plan.admitted)) == (["d"], ["s"])


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


class Traffic(RuleBasedStateMachine):
    """Random arrivals, aborts, finishes and time: who waits too long goes next, and nobody is lost or doubled."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        rows=st.integers(1, 4),
        preferred=st.sampled_from([(), (), (2,), (1, 3)]),
        max_frames=st.sampled_from([None, 60, 300]),
        cohort=st.booleans(),
    )
    def begin(self, policy: str, rows: int, preferred: tuple[int, ...], max_frames: int | None, cohort: bool) -> None:
        self.clock = Clock()
        limits = BatchLimits(rows, max_frames, 2.0, 0.3, preferred=tuple(size for size in preferred if size <= rows))
        self.rows, self.places = rows, 2
        self.scheduler = make(self.places, limits, policy, self.clock, cohort_admit=cohort)
        self.live: dict[str, Request] = {}
        self.ended: set[str] = set()
        self.serial = 0

    @rule(streaming=st.booleans(), priority=st.integers(-1, 2), length=st.integers(1, 100))
    def arrive(self, streaming: bool, priority: int, length: int) -> None:
        name = str(self.serial)
        self.serial += 1
        self.live[name] = request(name, streaming, priority, length)
        self.scheduler.add(self.live[name])

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """An abort of one that waits, or the end of one that runs."""
        if self.live:
            name = data.draw(st.sampled_from(sorted(self.live)))
            self.scheduler.remove(self.live.pop(name))
            self.ended.add(name)

    @rule(seconds=st.sampled_from([0.1, 3.0, 11.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule()
    def step(self) -> None:
        now = self.clock.now
        waiting = self.scheduler.waiting()
        late = [one for one in waiting if now - one.arrival_time >= MAX_WAIT_S]
        could_admit = self.scheduler.can_admit
        running = self.scheduler.num_running
        plan = self.scheduler.schedule()
        taken = (*plan.admitted, *plan.offline_batch)
        assert could_admit or not taken
        assert len(plan.offline_batch) <= self.rows and self.scheduler.num_running <= self.places
        for one in taken:
            assert self.live[one.request_id] is one and one in waiting
        late_clips = [one for one in late if not one.streaming]
        if late_clips:
            assert late_clips[0] in plan.offline_batch
        late_streams = [one for one in late if one.streaming]
        assert list(plan.admitted[: len(late_streams)]) == late_streams[: self.places - running]
        for one in plan.offline_batch:
            self.ended.add(one.request_id)
            del self.live[one.request_id]

    @invariant()
    def every_request_has_its_place(self) -> None:
        if self.serial == 0:
            return
        scheduler = self.scheduler
        waiting, running = names(scheduler.waiting()), names(scheduler.running())
        assert sorted(waiting + running) == sorted(self.live) == sorted(names(scheduler.everything()))
        assert len(self.live) + len(self.ended) == self.serial
        assert scheduler.num_waiting == len(waiting) and scheduler.num_running == len(running)

    def teardown(self) -> None:
        """With time enough everybody goes."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(len(self.live) + 1):
            self.clock.now += MAX_WAIT_S
            self.step()
            for stream in self.scheduler.running():
                self.scheduler.remove(stream)
                del self.live[stream.request_id]
                self.ended.add(stream.request_id)
        assert not self.live and self.scheduler.num_waiting == 0


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
