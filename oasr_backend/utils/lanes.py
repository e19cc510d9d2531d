"""Parts of a batch computed side by side, each on one core."""

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

T = TypeVar("T")

# A lane with fewer encoder frames is slower than its share of a batch on all cores (see docs/benchmarks.md).
_MIN_FRAMES = 128


class Lanes:
    """Threads whose operators each run on one core.

    Operators that share the cores meet at a barrier each, some thousand times a step: a core that is late holds up all.
    Lanes meet once.
    """

    def __init__(self, count: int):
        self.count = count
        self._pool: ThreadPoolExecutor | None = None
        if count < 2:
            return
        threads = torch.get_num_threads()
        ready = threading.Barrier(count)
        self._pool = ThreadPoolExecutor(count, "oasr-lane")
        wait([self._pool.submit(_settle, ready) for _ in range(count)])
        # For threads that are yet to come.
        torch.set_num_threads(threads)
        weakref.finalize(self, self._pool.shutdown, wait=False)

    def worth(self, frames: int) -> int:
        """In how many parts a batch of so many encoder frames is best computed."""
        return max(1, min(self.count, frames // _MIN_FRAMES))

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Results in order; raises the first error when all have ended. A single job runs on all cores."""
        if self._pool is None or len(jobs) < 2:
            return [job() for job in jobs]
        futures = [self._pool.submit(_inferring, job) for job in jobs]
        wait(futures)
        return [future.result() for future in futures]


def _settle(ready: threading.Barrier) -> None:
    # A thread takes over the process' setting when it first asks; its own must come after.
    torch.get_num_threads()
    torch.set_num_threads(1)
    # Each thread takes one of these.
    ready.wait()


def _inferring(job: Callable[[], T]) -> T:
    # The mode is a thread's own.
    with torch.inference_mode():
        return job()


def shares(sizes: Sequence[int], count: int) -> list[range]:
    """Neighbouring items in at most `count` ranges, each with a sum of `sizes` above 0, as even as neighbours allow.

    One range when all sizes are 0.
    """
    total = sum(sizes)
    bounds, before, done = [0], 0, 0
    for index, size in enumerate(sizes):
        # A border lies where the sum is nearest to its share.
        is_due = len(bounds) < count and done + size / 2 > total * len(bounds) / count
        if is_due and before < done < total:
            bounds.append(index)
            before = done
        done += size
    return [range(first, end) for first, end in zip(bounds, [*bounds[1:], len(sizes)], strict=True)]
