"""Keeping long-lived objects out of full garbage collections, which would stop every stream for their length."""

import gc
import threading
import weakref


class FrozenHeap:
    """The frozen part of this process's heap, shared by all who acquired it; any thread may call."""

    def __init__(self) -> None:
        # Re-entrant: a collection in here may end an object that releases.
        self._lock = threading.RLock()
        self._users = 0

    def acquire(self) -> None:
        """Collects garbage and freezes what is left, what died since the last freeze not among it."""
        with self._lock:
            self._users += 1
            self._freeze_anew()

    def release(self) -> None:
        """The last release thaws the heap; before that, garbage is collected and the survivors are frozen again.

        Raises RuntimeError when there is nothing to release.
        """
        with self._lock:
            if not self._users:
                raise RuntimeError("the heap is released more often than it was acquired; release each handle once")
            self._users -= 1
            self._freeze_anew()

    def _freeze_anew(self) -> None:
        gc.unfreeze()
        if self._users:
            gc.collect()
        # Asked again, because the collection may have released.
        if self._users:
            gc.freeze()


_HEAP = FrozenHeap()


class HeapFreeze:
    """One owner's share in the frozen heap of this process; released when asked, or when it dies.

    An owner sets it as its last attribute: attributes die in order, so that what the owner held is garbage already
    when the heap is collected. A frozen owner is ended by its reference count alone, so it must not be in a cycle.
    """

    def __init__(self, heap: FrozenHeap = _HEAP):
        heap.acquire()
        self._finalizer = weakref.finalize(self, heap.release)
        # At exit there is nothing to give back.
        self._finalizer.atexit = False

    def release(self) -> None:
        """Gives the share back; further calls do nothing."""
        self._finalizer()
