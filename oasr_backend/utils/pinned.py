"""Page-locked host memory: lent for audio, within bounds, and given back to the system when too much lies idle."""

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

log = logging.getLogger(__name__)


class SampleAllowance:
    """How many samples may be lent, each time and in all; any thread may call."""

    def __init__(self, most_each: int, most_in_all: int):
        self._most_each = most_each
        self._most_in_all = most_in_all
        self._lock = threading.Lock()
        self._lent = 0
        # Without a lock: a finalizer may run in the middle of `take`, on the same thread.
        self._returned: deque[int] = deque()

    @property
    def lent(self) -> int:
        """Samples taken and not given back."""
        with self._lock:
            return self._settle()

    def take(self, samples: int) -> bool:
        """Whether `samples` may be lent; they count as lent then."""
        if not 0 < samples <= self._most_each:
            return False
        with self._lock:
            if self._settle() + samples > self._most_in_all:
                return False
            self._lent += samples
            return True

    def give_back(self, samples: int) -> None:
        self._returned.append(samples)

    def _settle(self) -> int:
        while self._returned:
            self._lent -= self._returned.popleft()
        return self._lent


def page_locked(samples: int) -> Tensor:
    """[samples] float32, uninitialised. Raises RuntimeError when the system locks no more pages."""
    return torch.empty(samples, dtype=torch.float32, pin_memory=True)


class AudioBuffers:
    """Lends page-locked waveforms up to a length each and a total; a buffer counts until its memory is free."""

    def __init__(
        self,
        device: torch.device,
        sample_rate: int,
        max_seconds: float,
        max_total_seconds: float,
        allocate: Callable[[int], Tensor] = page_locked,
    ):
        self._on_gpu = device.type == "cuda"
        self._allocate = allocate
        self.allowance = SampleAllowance(int(max_seconds * sample_rate), int(max_total_seconds * sample_rate))

    def new(self, samples: int) -> Tensor | None:
        """[samples] float32 in page-locked memory, uninitialised.

        None where ordinary memory serves: on CPU, for no samples or too many of them, when too many are lent already,
        and when page-locking fails.
        """
        if not self._on_gpu or not self.allowance.take(samples):
            return None
        try:
            buffer = self._allocate(samples)
        except (RuntimeError, MemoryError) as error:
            self.allowance.give_back(samples)
            log.warning("no page-locked memory for %d samples: %s", samples, error)
            return None
        # The storage, because a view of the buffer keeps the memory after the buffer itself has gone.
        weakref.finalize(buffer.untyped_storage(), self.allowance.give_back, samples).atexit = False
        return buffer


def cached_bytes() -> int:
    """Page-locked memory that the allocator holds, in use or not; 0 where torch does not say."""
    if not hasattr(torch.cuda, "host_memory_stats"):
        return 0
    return int(torch.cuda.host_memory_stats().get("allocated_bytes.current", 0))


def empty_cache() -> None:
    """Gives page-locked memory that nobody uses back to the system."""
    torch._C._host_emptyCache()


class PageLockedCache:
    """Bounds what the allocator keeps of page-locked memory while nothing runs.

    It keeps every block for the next of the same power of two, so that lengths that vary pile up. Locking pages anew
    costs the next request milliseconds, so nothing is given back below the bound.
    """

    def __init__(
        self, audio_bytes: int, held: Callable[[], int] = cached_bytes, empty: Callable[[], None] = empty_cache
    ):
        """`audio_bytes`: the most that is lent; twice as much may lie there beside what is held now."""
        self._held = held
        self._empty = empty
        self._bound = held() + 2 * audio_bytes

    def trim(self) -> bool:
        """For an idle engine: gives all that is unused back when more than the bound is held; whether it did."""
        if self._held() <= self._bound:
            return False
        self._empty()
        return True
