"""Ends a model whose server is gone: killed, or ended at its exit timeout, Triton leaves the process behind."""

import logging
import os
import threading
import time

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


def end_with_server() -> None:
    """From now on this process ends within a second or two of its parent.

    By looking and not by a signal of the kernel, which takes the end of the thread that started this process for the
    end of the server.
    """
    server = os.getppid()
    threading.Thread(target=_watch, args=(server,), name="oasr-orphan", daemon=True).start()


def _watch(server: int) -> None:
    while os.getppid() == server:
        time.sleep(_INTERVAL_S)
    log.critical("the server is gone; ending its model")
    os._exit(1)
