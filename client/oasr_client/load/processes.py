"""The processes that streams of a load are shared out over."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any

from oasr_client import audio
from oasr_client.errors import OasrError
from oasr_client.load.run import LoadRun, merged
from oasr_client.load.shares import processes_for, shares
from oasr_client.load.streams import LEAD_S, Share, Target, paced, phases_of, run_share

# What is left of a load that was interrupted gets so long to end its streams.
_GRACE_S = 3.0
# New interpreters, not copies of this one: gRPC does not survive a fork.
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass
class _Worker:
    process: Any
    pipe: connection.Connection


class Processes:
    """Runs loads in real time in as many processes as they need, and ends these when it is left; for the main thread.

    Args:
        count: processes of every load, though never more than streams; None: as many as keep the pace, at most one a
            core. One alone is this process.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = count
        self._workers: list[_Worker] = []
        # Made with the first process, as it costs one of its own.
        self._stop: Event | None = None

    def count_for(self, streams: int, chunk_s: float) -> int:
        """Processes of a load of so many streams in chunks of `chunk_s` seconds."""
        if self._count is None:
            return processes_for(streams, chunk_s, os.cpu_count() or 1)
        return min(self._count, streams)

    def paced(self, target: Target, waves: Sequence[audio.Samples], give_up_s: float, seed: int = 0) -> LoadRun:
        """As `streams.paced`.

        Raises:
            OasrError: a process ended before its streams did.
        """
        count = self.count_for(len(waves), target.chunk_s)
        if count == 1:
            return paced(target, waves, give_up_s, seed)
        phases, numbers = phases_of(target, len(waves), seed), shares(len(waves), count)
        workers = self._started(count)
        for worker, own in zip(workers, numbers):
            _tell(worker, Share(target, [waves[one] for one in own], [phases[one] for one in own], give_up_s))
        _heard(workers)
        begin = time.monotonic() + LEAD_S
        for worker in workers:
            _tell(worker, begin)
        return merged(list(zip(numbers, _heard(workers))), len(waves))

    def _started(self, count: int) -> list[_Worker]:
        if self._stop is None:
            self._stop = _CONTEXT.Event()
        self._stop.clear()
        with _deaf_to_interrupts():
            while len(self._workers) < count:
                ours, theirs = _CONTEXT.Pipe()
                process = _CONTEXT.Process(target=_serve, args=(theirs, self._stop), name="oasr-load", daemon=True)
                process.start()
                theirs.close()
                self._workers.append(_Worker(process, ours))
        return self._workers[:count]

    def close(self) -> None:
        """Ends the processes; streams that run are ended first, where that does not take long."""
        if self._stop is not None:
            self._stop.set()
        for worker in self._workers:
            worker.pipe.close()
        deadline = time.monotonic() + _GRACE_S
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()
        self._workers.clear()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _tell(worker: _Worker, message: Any) -> None:
    try:
        worker.pipe.send(message)
    except OSError:
        raise _lost(worker) from None


def _heard(workers: Sequence[_Worker]) -> list[Any]:
    """A message of each, in their order."""
    silent = {worker.pipe: number for number, worker in enumerate(workers)}
    messages: list[Any] = [None] * len(workers)
    while silent:
        for pipe in connection.wait(list(silent)):
            assert isinstance(pipe, connection.Connection)
            number = silent.pop(pipe)
            try:
                messages[number] = pipe.recv()
            except (EOFError, OSError):
                raise _lost(workers[number]) from None
    return messages


def _lost(worker: _Worker) -> OasrError:
    worker.process.join(_GRACE_S)
    return OasrError(
        f"a process of the load ended with status {worker.process.exitcode} before its streams did, perhaps for want "
        "of memory; try again with fewer --processes"
    )


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is started meanwhile is not told of Ctrl-C, which a terminal sends to all: it ends with this process."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: connection.Connection, stop: Event) -> None:
    """The life of a process: a share, word that it is ready, the moment to begin, the outcome; and again."""
    threading.Thread(target=_end_with_parent, name="oasr-load-watch", daemon=True).start()
    # The pipe breaks when the parent has enough.
    with suppress(EOFError, OSError):
        while True:
            pipe.send(run_share(pipe.recv(), stop, partial(_agreed, pipe)))


def _agreed(pipe: connection.Connection) -> float:
    """Says that this process is ready; when all are to begin, in monotonic seconds."""
    pipe.send(None)
    begin: float = pipe.recv()
    return begin


def _end_with_parent() -> None:
    """However that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
