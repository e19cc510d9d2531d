"""Ends a server one of whose models has lost its process: Triton starts none anew, and stays ready."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from oasr_backend.utils.lease import abandoned

log = logging.getLogger("oasr.serve")

_INTERVAL_S = 0.25


class ModelWatch:
    """Looks at the models' leases until it is told to stop.

    Args:
        directory: where the models leave their leases.
        has_ended: whether the server itself is gone, with all its processes.
        on_loss: called once, by the thread of this watch, when a process is gone.
    """

    def __init__(self, directory: Path, has_ended: Callable[[], bool], on_loss: Callable[[], object]) -> None:
        self._directory = directory
        self._has_ended = has_ended
        self._on_loss = on_loss
        self._stopped = threading.Event()
        self.lost: tuple[str, ...] = ()
        """Names of the models that have lost theirs."""

    def start(self) -> None:
        """From now on a lost process is noticed within half a second."""
        threading.Thread(target=self._watch, name="model-watch", daemon=True).start()

    def stop(self) -> None:
        """What ends from now on ends with the server."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            lost = abandoned(self._directory)
            # A server that is killed loses all of them a moment before it is known to have ended.
            if lost and not self._stopped.wait(_INTERVAL_S) and not self._has_ended():
                self.lost = tuple(dict.fromkeys(lost))
                log.error(
                    "the process of %s is gone; ending the server, because Triton starts none anew",
                    " and ".join(self.lost),
                )
                self._on_loss()
                return
