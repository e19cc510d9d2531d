"""Threads that send responses: a send is a blocking round trip to the server."""

import logging
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

Job = Callable[[], None]


class SenderPool:
    """Runs sends in order per key, so that answers of one stream never overtake each other.

    Keys take turns, one send each, so that a stream with a thousand answers delays the others by no more than its
    turn.
    """

    def __init__(self, threads: int):
        self._jobs: dict[int, deque[Job]] = {}
        # Keys with a job that no thread works on, in the order of their turns.
        self._turns: deque[int] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"oasr-sender-{index}", daemon=True) for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, key: int, job: Job) -> None:
        """Queues `job` behind those of an equal `key`."""
        with self._changed:
            if key in self._jobs:
                self._jobs[key].append(job)
                return
            self._jobs[key] = deque([job])
            self._turns.append(key)
            self._changed.notify()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Sends what is queued, then ends the threads."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _run(self) -> None:
        while (key := self._next()) is not None:
            # Only this thread takes from a key that is out of the turns.
            job = self._jobs[key][0]
            try:
                job()
            except Exception:
                # A client that is gone must not end the thread.
                log.exception("a response could not be sent")
            self._done(key)

    def _next(self) -> int | None:
        """The key whose turn it is, taken out of the turns; None when all is sent and no more will come."""
        with self._changed:
            while not self._turns:
                if self._stopping and not self._jobs:
                    return None
                self._changed.wait()
            return self._turns.popleft()

    def _done(self, key: int) -> None:
        with self._changed:
            jobs = self._jobs[key]
            jobs.popleft()
            if jobs:
                self._turns.append(key)
                self._changed.notify()
            else:
                del self._jobs[key]
                if self._stopping:
                    self._changed.notify_all()
