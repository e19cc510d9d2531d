"""Whether the client of a request has taken it back: over gRPC one that cancelled, ran out of time or is gone.

The server knows nothing of it over HTTP.
"""

import time
from collections.abc import Callable

# Asking is a round trip; of a request that is answered sooner it costs more than it would tell.
_WORTH_ASKING_S = 0.1


class Cancellation:
    """Asks the server about one request; `ask` and `close` are for one thread at a time, `seen` may be read by any.

    `is_cancelled` must not be called once the request is answered, as the server forgets it then.
    """

    def __init__(self, is_cancelled: Callable[[], bool], clock: Callable[[], float] = time.monotonic):
        self._is_cancelled: Callable[[], bool] | None = is_cancelled
        self._clock = clock
        self._received = clock()
        self.seen = False

    @property
    def is_due(self) -> bool:
        """Whether the request has waited long enough to be asked about."""
        return not self.seen and self._clock() - self._received >= _WORTH_ASKING_S

    def ask(self) -> None:
        """Looks again, unless the request is answered."""
        if self._is_cancelled is not None and self.is_due:
            self.seen = self._is_cancelled()

    def close(self) -> None:
        """Looks for the last time; the request is answered right after it."""
        self.ask()
        self._is_cancelled = None
