"""Clips shared out over several servers: who is free takes the next one, who fails is left alone for a while."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from oasr_client import errors

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Server = TypeVar("Server")

# Of the server, not of the clip: another server may well manage.
_SERVER_FAULTS = (errors.ServerUnavailable, errors.ServerTimeout, errors.ModelNotFound)
_FULL = "SERVER_FULL"
_FIRST_REST_S = 0.5
_LONGEST_REST_S = 30.0


def rest_s(failures: int) -> float:
    """Seconds that a server is left alone after so many failures in a row (1 or more)."""
    return min(_LONGEST_REST_S, _FIRST_REST_S * 2.0 ** min(failures - 1, 16))


@dataclass
class _Seat(Generic[Server]):
    """A server, and how it has done lately."""

    server: Server
    failures: int = 0
    rests_until: float = 0.0
    busy: int = 0

    def may_work(self, now: float) -> bool:
        """One that has failed is tried with one clip first."""
        return now >= self.rests_until and (not self.failures or not self.busy)


@dataclass
class _Job(Generic[Item]):
    place: int
    item: Item
    tries: int = 0


@dataclass
class Fleet(Generic[Server]):
    """Several servers that do the same.

    Attributes:
        servers: what `work` is called with.
        concurrency: clips at a time on each of them.
        patience_s: seconds without any success after which clips are given up because of their servers; where none
            was ever there, they are given up at once.
        most_tries: times that a clip is tried where servers fail at it.
        clock: seconds that only grow.
    """

    servers: Sequence[Server]
    concurrency: int = 8
    patience_s: float = 60.0
    most_tries: int = 4
    clock: Callable[[], float] = time.monotonic
    _change: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def spread(
        self, items: Iterable[Item], work: Callable[[Server, Item], Outcome]
    ) -> Iterator[tuple[int, Outcome | errors.OasrError]]:
        """Runs `work` on every item on one server or another; yields places and outcomes as they come.

        `work` raises an OasrError where it fails. A fault of the server sends the item to another one, any other error
        is its outcome; so is a fault of servers that lasts. A UsageError ends the run and is raised here. Leaving early
        begins no other item. What `work` does with a result is done before its server is given another item.
        """
        run = _Run(self, deque(_Job(place, item) for place, item in enumerate(items)), work)
        expected = len(run.waiting)
        threads = [
            threading.Thread(target=run.serve, args=(seat,), name=f"oasr-fleet-{number}", daemon=True)
            for number, seat in enumerate(run.seats)
            for _ in range(self.concurrency)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(expected):
                outcome = run.done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                yield outcome
        finally:
            with self._change:
                run.closed = True
                self._change.notify_all()


class _Run(Generic[Server, Item, Outcome]):
    def __init__(
        self, fleet: Fleet[Server], waiting: "deque[_Job[Item]]", work: Callable[[Server, Item], Outcome]
    ) -> None:
        self._fleet = fleet
        self._work = work
        self._change = fleet._change
        self._last_success = fleet.clock()
        self._met = False
        self.waiting = waiting
        self.unfinished = len(waiting)
        self.seats = [_Seat(server) for server in fleet.servers]
        self.done: queue.Queue[tuple[int, Outcome | errors.OasrError] | BaseException] = queue.Queue()
        self.closed = False

    def serve(self, seat: _Seat[Server]) -> None:
        """The life of one thread of a server."""
        try:
            while (job := self._next(seat)) is not None:
                self._do(seat, job)
        except BaseException as error:
            self.done.put(error)

    def _next(self, seat: _Seat[Server]) -> _Job[Item] | None:
        with self._change:
            while not self.closed and self.unfinished:
                now = self._fleet.clock()
                if self.waiting and seat.may_work(now):
                    seat.busy += 1
                    return self.waiting.popleft()
                # A rest ends by itself; everything else that matters is told.
                self._change.wait(max(0.01, seat.rests_until - now) if now < seat.rests_until else 1.0)
            return None

    def _do(self, seat: _Seat[Server], job: _Job[Item]) -> None:
        fault: errors.OasrError | None = None
        outcome: Outcome | errors.OasrError
        try:
            outcome = self._work(seat.server, job.item)
        except (*_SERVER_FAULTS, errors.ServerError) as error:
            outcome = fault = error
        except errors.UsageError:
            # Of the whole run, not of this item.
            raise
        except errors.OasrError as error:
            outcome = error
        with self._change:
            seat.busy -= 1
            now = self._fleet.clock()
            if isinstance(fault, _SERVER_FAULTS):
                seat.failures += 1
                seat.rests_until = now + rest_s(seat.failures)
            else:
                seat.failures, seat.rests_until = 0, 0.0
            if fault is None:
                self._last_success, self._met = now, True
            elif self._goes_back(job, fault, now):
                self.waiting.appendleft(job)
                self._change.notify_all()
                return
            self.unfinished -= 1
            self.done.put((job.place, outcome))
            self._change.notify_all()

    def _goes_back(self, job: _Job[Item], fault: errors.OasrError, now: float) -> bool:
        # A server that is full, or not there, has not failed at the clip itself.
        unreachable = isinstance(fault, errors.ServerUnreachable)
        self._met |= not unreachable
        if not self._met and all(seat.failures for seat in self.seats):
            # Servers of which none was ever there are not waited for.
            return False
        if fault.code != _FULL and not unreachable:
            job.tries += 1
        return job.tries < self._fleet.most_tries and now - self._last_success < self._fleet.patience_s
