"""Admission work on a thread of its own, so that it overlaps the engine's steps."""

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oasr_backend.engine.request import Request

log = logging.getLogger(__name__)

_STOP_WAIT_S = 2.0


@dataclass(frozen=True)
class Prepared:
    """A request with its checked waveform, or why there is none."""

    request: Request
    samples: np.ndarray | None
    error: Exception | None = None


class Preparation:
    """Checks and copies waveforms in order of admission. `prepare` runs on the thread and must not touch the engine."""

    def __init__(self, prepare: Callable[[object], np.ndarray]):
        self._prepare = prepare
        self._inbox: queue.SimpleQueue[tuple[Request, object] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Prepared] = queue.SimpleQueue()
        self._pending: dict[str, Request] = {}
        self._some_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="oasr-preparation", daemon=True)
        self._thread.start()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._pending

    def __len__(self) -> int:
        """Requests that have not been handed over; touched only under the engine's lock, as are all calls but the
        thread's own and `wait`."""
        return len(self._pending)

    def submit(self, request: Request, audio: object) -> None:
        self._pending[request.request_id] = request
        self._inbox.put((request, audio))

    def withdraw(self, request_id: str) -> None:
        """What is being prepared is dropped when it is done."""
        del self._pending[request_id]

    def drain(self) -> list[Prepared]:
        """All that is done and was not withdrawn."""
        self._some_done.clear()
        ready: list[Prepared] = []
        while True:
            try:
                item = self._done.get_nowait()
            except queue.Empty:
                return ready
            # An id may have been used again after a withdrawal.
            if self._pending.get(item.request.request_id) is item.request:
                del self._pending[item.request.request_id]
                ready.append(item)

    def wait(self, timeout_s: float) -> None:
        """Until something is done."""
        self._some_done.wait(timeout_s)

    def clear(self) -> None:
        """Withdraws everything."""
        self._pending.clear()

    def stop(self) -> None:
        """Ends the thread, without the engine's lock; may be called twice."""
        self._inbox.put(None)
        self._thread.join(_STOP_WAIT_S)

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            request, audio = item
            try:
                prepared = Prepared(request, self._prepare(audio))
            except Exception as error:
                prepared = Prepared(request, None, error)
            self._done.put(prepared)
            self._some_done.set()
