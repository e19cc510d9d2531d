"""Who goes next. Requests wait in two queues, streams run in a third set; the index holds exactly their union."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from oasr_backend.engine.batching import BatchLimits, Candidate, admit_streams, batching_policy, choose_batch
from oasr_backend.engine.request import Request, RequestState
from oasr_backend.engine.waiting_queue import WaitingQueue


@dataclass(frozen=True)
class SchedulerOutput:
    """One step's work."""

    offline_batch: tuple[Request, ...]
    admitted: tuple[Request, ...]
    running: tuple[Request, ...]


class Scheduler:
    """Admission in order of priority (lower first) and arrival; who has waited `max_wait_s` goes first."""

    def __init__(
        self,
        max_running: int,
        limits: BatchLimits,
        policy: str,
        length: Callable[[Request], int],
        max_wait_s: float = math.inf,
        cohort_admit: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`length` gives a request's feature frames. Raises ConfigError for a policy that is not registered."""
        self._max_running = max_running
        self._max_wait_s = max_wait_s
        self._limits = limits
        self._policy = batching_policy(policy)
        self._by_length = cohort_admit or policy == "sjf"
        self._clock = clock
        self._offline = WaitingQueue(max_wait_s, length)
        self._streams = WaitingQueue(max_wait_s, length)
        self._queues = (("offline", self._offline), ("streams", self._streams))
        self._running: dict[str, Request] = {}
        self._index: dict[str, Request] = {}
        # Until then a queue that holds fewer than the smallest preferred size waits for more.
        self._held_until = {"offline": -math.inf, "streams": -math.inf}
        self._streams_started = 0

    @property
    def num_waiting(self) -> int:
        return len(self._offline) + len(self._streams)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def clips_can_go(self) -> bool:
        """Whether the next step has an offline batch."""
        return bool(self._offline) and self._clock() >= self._held_until["offline"]

    @property
    def can_admit(self) -> bool:
        """Whether something waits that the next step might take in."""
        now = self._clock()
        has_place = len(self._running) < self._max_running
        return self.clips_can_go or (bool(self._streams) and has_place and now >= self._held_until["streams"])

    @property
    def seconds_held(self) -> float:
        """Time until a queue that waits for more goes as it is; infinite when none does."""
        now = self._clock()
        times = [self._held_until[name] - now for name, queue in self._queues if queue]
        return min((held for held in times if held > 0), default=math.inf)

    @property
    def is_holding(self) -> bool:
        """Whether requests wait for a preferred size although they could go."""
        now = self._clock()
        return any(queue and self._held_until[name] > now for name, queue in self._queues)

    def waited(self, request: Request) -> float:
        """Seconds since a request began to wait."""
        return self._clock() - request.arrival_time

    @property
    def free_places(self) -> int:
        """Live streams that could start at once."""
        return max(0, self._max_running - len(self._running) - len(self._streams))

    def running(self) -> tuple[Request, ...]:
        return tuple(self._running.values())

    def waiting(self) -> tuple[Request, ...]:
        return (*self._streams, *self._offline)

    def everything(self) -> tuple[Request, ...]:
        """All requests that live."""
        return tuple(self._index.values())

    def add(self, request: Request) -> None:
        """Stamps the request's arrival. Raises ValueError when the id is in use."""
        if request.request_id in self._index:
            raise ValueError(f"request id {request.request_id!r} is in use; ids must be unique while a request lives")
        request.arrival_time = self._clock()
        self._index[request.request_id] = request
        self._queue_of(request).add(request)
        self._held_until[_queue_name(request)] = -math.inf

    def find(self, request_id: str) -> Request | None:
        return self._index.get(request_id)

    def schedule(self, flush: bool = False) -> SchedulerOutput:
        """Moves waiting streams into free places and takes one offline batch out of its queue.

        `flush`: nothing waits for a preferred size, as when nothing more will come.
        """
        admitted, running = self.schedule_streaming(flush)
        return SchedulerOutput(self.schedule_offline(flush), admitted, running)

    def schedule_streaming(self, flush: bool = False) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
        """Streams that start now, and all that run."""
        if not self._streams or len(self._running) >= self._max_running:
            return (), self.running()
        ordered = list(self._streams.in_order(self._clock()))
        chosen = admit_streams(
            [candidate for _, candidate in ordered],
            len(self._running),
            self._max_running,
            () if flush else self._limits.preferred,
            self._by_length,
        )
        admitted = tuple(ordered[index][0] for index in chosen)
        for request in admitted:
            self._streams.remove(request)
            request.state = RequestState.RUNNING
            request.stream_id = self._streams_started
            self._streams_started += 1
            self._running[request.request_id] = request
        self._hold("streams", self._streams, held=not admitted)
        return admitted, self.running()

    def schedule_offline(self, flush: bool = False) -> tuple[Request, ...]:
        """The next batch, in the order in which its requests would have gone alone."""
        if not self._offline:
            return ()
        seen: list[Request] = []

        def candidates() -> Iterator[Candidate]:
            for request, candidate in self._offline.in_order(self._clock()):
                seen.append(request)
                yield candidate

        limits = replace(self._limits, preferred=()) if flush else self._limits
        chosen = choose_batch(self._policy, candidates(), limits)
        batch = tuple(seen[index] for index in chosen)
        for request in batch:
            self._offline.remove(request)
            request.state = RequestState.RUNNING
            del self._index[request.request_id]
        self._hold("offline", self._offline, held=not batch)
        return batch

    def remove(self, request: Request) -> None:
        """Takes a request out, wherever it is; the index forgets it."""
        self._index.pop(request.request_id, None)
        if request.state is RequestState.RUNNING:
            self._running.pop(request.request_id, None)
        elif request.state is RequestState.WAITING:
            self._queue_of(request).remove(request)
        self._held_until[_queue_name(request)] = -math.inf
        request.state = RequestState.FINISHED

    def _queue_of(self, request: Request) -> WaitingQueue:
        return self._streams if request.streaming else self._offline

    def _hold(self, name: str, queue: WaitingQueue, held: bool) -> None:
        """Notes until when nothing can change by itself: the moment at which the oldest gets overdue."""
        oldest = queue.oldest
        self._held_until[name] = oldest.arrival_time + self._max_wait_s if held and oldest else -math.inf


def _queue_name(request: Request) -> str:
    return "streams" if request.streaming else "offline"
