"""Threads that send responses: a send is a blocking round trip to the server."""

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class SenderPool:
    """Runs sends in order per key, so that answers of one stream never overtake each other."""

    def __init__(self, threads: int):
        self._queues: list[queue.SimpleQueue[Callable[[], None] | None]] = [queue.SimpleQueue() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"oasr-sender-{index}", daemon=True)
            for index, lane in enumerate(self._queues)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, key: int, job: Callable[[], None]) -> None:
        """Queues `job` behind those of an equal `key`."""
        self._queues[key % len(self._queues)].put(job)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Sends what is queued, then ends the threads."""
        for lane in self._queues:
            lane.put(None)
        for thread in self._threads:
            thread.join(timeout_s)

    @staticmethod
    def _run(lane: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
        while (job := lane.get()) is not None:
            try:
                job()
            except Exception:
                # A client that is gone must not end the thread.
                log.exception("a response could not be sent")
