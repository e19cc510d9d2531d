"""Requests that wait: in order of priority and arrival, with those that have waited too long in front."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from oasr_backend.engine.batching import Candidate
from oasr_backend.engine.request import Request

_OVERDUE = float("-inf")


class WaitingQueue:
    """Adding, finding and taking out cost the same however many wait."""

    def __init__(self, max_wait_s: float, length: Callable[[Request], int]):
        self._max_wait_s = max_wait_s
        self._length = length
        self._by_arrival: OrderedDict[str, Request] = OrderedDict()
        self._by_priority: dict[int, OrderedDict[str, Request]] = {}

    def __len__(self) -> int:
        return len(self._by_arrival)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._by_arrival.values())

    @property
    def oldest(self) -> Request | None:
        return next(iter(self._by_arrival.values()), None)

    def add(self, request: Request) -> None:
        """Requests are added in the order of their arrival times."""
        self._by_arrival[request.request_id] = request
        self._by_priority.setdefault(request.priority, OrderedDict())[request.request_id] = request

    def remove(self, request: Request) -> None:
        """Raises KeyError when the request does not wait here."""
        del self._by_arrival[request.request_id]
        peers = self._by_priority[request.priority]
        del peers[request.request_id]
        if not peers:
            del self._by_priority[request.priority]

    def in_order(self, now: float) -> Iterator[tuple[Request, Candidate]]:
        """Overdue requests, oldest first; then by priority, lower first, and arrival."""
        for request in self._by_arrival.values():
            if not self._overdue(request, now):
                break
            yield request, Candidate(self._length(request), _OVERDUE, True)
        for priority in sorted(self._by_priority):
            for request in self._by_priority[priority].values():
                if not self._overdue(request, now):
                    yield request, Candidate(self._length(request), priority)

    def _overdue(self, request: Request, now: float) -> bool:
        return now - request.arrival_time >= self._max_wait_s
