"""Who goes next. Requests wait in two queues, streams run in a third set; the index holds exactly their union."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from oasr_backend.engine.batching import BatchLimits, batching_policy
from oasr_backend.engine.request import Request, RequestState


@dataclass(frozen=True)
class SchedulerOutput:
    """One step's work."""

    offline_batch: tuple[Request, ...]
    admitted: tuple[Request, ...]
    running: tuple[Request, ...]


class Scheduler:
    """Admission in order of priority (lower first) and arrival; who waits longer than `max_wait_s` goes first."""

    # A policy looks at no more than this many waiting requests.
    _LOOKAHEAD = 4

    def __init__(
        self,
        max_running: int,
        limits: BatchLimits,
        policy: str,
        cost: Callable[[Request], int],
        max_wait_s: float = math.inf,
    ):
        self._max_running = max_running
        self._max_wait_s = max_wait_s
        self._limits = limits
        self._policy = batching_policy(policy)
        self._cost = cost
        self._offline: list[Request] = []
        self._streams: list[Request] = []
        self._running: dict[str, Request] = {}
        self._index: dict[str, Request] = {}

    @property
    def num_waiting(self) -> int:
        return len(self._offline) + len(self._streams)

    @property
    def can_admit(self) -> bool:
        """Whether something waits that the next step would take in."""
        return bool(self._offline) or (bool(self._streams) and len(self._running) < self._max_running)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def free_places(self) -> int:
        """Live streams that could start at once."""
        return max(0, self._max_running - len(self._running) - len(self._streams))

    def running(self) -> tuple[Request, ...]:
        return tuple(self._running.values())

    def everything(self) -> tuple[Request, ...]:
        """All requests that live."""
        return tuple(self._index.values())

    def add(self, request: Request) -> None:
        """Raises ValueError when the id is in use."""
        if request.request_id in self._index:
            raise ValueError(f"request id {request.request_id!r} is in use; ids must be unique while a request lives")
        self._index[request.request_id] = request
        queue = self._streams if request.streaming else self._offline
        # Behind all of its own priority.
        position = len(queue)
        while position and queue[position - 1].priority > request.priority:
            position -= 1
        queue.insert(position, request)

    def find(self, request_id: str) -> Request | None:
        return self._index.get(request_id)

    def schedule(self) -> SchedulerOutput:
        """Moves waiting streams into free places and takes one offline batch out of its queue."""
        now = time.monotonic()
        self._streams = self._overdue_first(self._streams, now)
        admitted = tuple(self._streams[: self._max_running - len(self._running)])
        del self._streams[: len(admitted)]
        for request in admitted:
            request.state = RequestState.RUNNING
            self._running[request.request_id] = request
        return SchedulerOutput(self._take_batch(), admitted, self.running())

    def _take_batch(self) -> tuple[Request, ...]:
        if not self._offline:
            return ()
        self._offline = self._overdue_first(self._offline, time.monotonic())
        candidates = list(islice(self._offline, self._limits.max_rows * self._LOOKAHEAD))
        chosen = sorted(self._policy([self._cost(request) for request in candidates], self._limits))
        for index in reversed(chosen):
            del self._offline[index]
        batch = tuple(candidates[index] for index in chosen)
        for request in batch:
            request.state = RequestState.RUNNING
            del self._index[request.request_id]
        return batch

    def _overdue_first(self, queue: list[Request], now: float) -> list[Request]:
        """The queue with those that have waited too long in front, oldest first."""
        overdue = [request for request in queue if request.waited(now) > self._max_wait_s]
        if not overdue:
            return queue
        overdue.sort(key=lambda request: request.arrival_time)
        late = {request.request_id for request in overdue}
        return overdue + [request for request in queue if request.request_id not in late]

    def remove(self, request: Request) -> None:
        """Takes a request out, wherever it is; the index forgets it."""
        self._index.pop(request.request_id, None)
        if request.state is RequestState.RUNNING:
            self._running.pop(request.request_id, None)
        elif request.state is RequestState.WAITING:
            queue = self._streams if request.streaming else self._offline
            queue.remove(request)
        request.state = RequestState.FINISHED
