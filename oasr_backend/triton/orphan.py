"""Ends a model whose server is gone: killed, or ended at its exit timeout, Triton leaves the process behind."""

import logging
import os
import threading
import time

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


def end_with_server() -> None:
    """From now on this process ends within a second or two of its parent, at once where that has ended already.

    By looking and not by a signal of the kernel, which takes the end of the thread that started this process for the
    end of the server.
    """
    server = os.getppid()
    if not _is_in_this_group(server):
        # It ended while this process was still starting, and whoever takes in orphans is the parent now.
        _end(f"; its parent is process {server}, which is not in group {os.getpgrp()}")
    threading.Thread(target=_watch, args=(server,), name="oasr-orphan", daemon=True).start()


def _is_in_this_group(process: int) -> bool:
    """A server and its models are one group of processes."""
    try:
        return os.getpgid(process) == os.getpgrp()
    except ProcessLookupError:
        return False


def _watch(server: int) -> None:
    while os.getppid() == server:
        time.sleep(_INTERVAL_S)
    _end()


def _end(seen: str = "") -> None:
    log.critical("the server is gone; ending its model%s", seen)
    os._exit(1)
