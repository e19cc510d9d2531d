"""What the adapter measures of its requests beside the engine: latencies and refusals."""

import logging
import threading
from typing import get_args

from oasr_backend.engine.metrics import EngineMetrics, Family, MetricsSnapshot
from oasr_backend.triton.errors import Code, Refusal
from oasr_backend.utils.log_lines import event

log = logging.getLogger(__name__)

CHUNK, FIRST_PARTIAL, FINAL, CLIP = (
    "chunk_latency_seconds",
    "first_partial_seconds",
    "final_latency_seconds",
    "clip_latency_seconds",
)
FAMILIES = {
    CHUNK: Family("HISTOGRAM", "From the arrival of a chunk with audio to the hand-over of its answer"),
    FIRST_PARTIAL: Family("HISTOGRAM", "From the arrival of a stream's START to the hand-over of its first text"),
    FINAL: Family("HISTOGRAM", "From the arrival of a stream's END to the hand-over of its final text"),
    CLIP: Family("HISTOGRAM", "From the arrival of an offline request to the hand-over of its answer"),
    "requests_refused": Family("COUNTER", "Requests answered with an error, by its code", "code"),
}
REFUSALS = tuple(f"requests_refused:{code}" for code in get_args(Code))

_MAX_ID = 256
# Its sentence repeats what the client sent.
_QUOTING = frozenset({"INVALID_OPTION"})


class RequestMeter:
    """Collects from any thread; one thread exports."""

    def __init__(self, log_text: bool = False):
        """`log_text`: sentences that repeat what a client sent may be logged."""
        self._log_text = log_text
        self._lock = threading.Lock()
        self._metrics = EngineMetrics()

    def observe(self, name: str, seconds: float) -> None:
        with self._lock:
            self._metrics.observe(name, seconds)

    def refused(self, refusal: Refusal, correlation_id: int | str) -> None:
        """Counts and logs an error answer."""
        with self._lock:
            self._metrics.count(f"requests_refused:{refusal.code}")
        event(
            log,
            logging.ERROR if refusal.status == "INTERNAL" else logging.INFO,
            "request refused",
            correlation_id=shown_id(correlation_id) or None,
            code=refusal.code,
            reason=str(refusal) if self._log_text or refusal.code not in _QUOTING else None,
        )

    def snapshot(self) -> MetricsSnapshot:
        with self._lock:
            return self._metrics.snapshot()


def shown_id(correlation_id: int | str) -> int | str:
    """A correlation id as the log has it: as given, but of bounded length."""
    return correlation_id[:_MAX_ID] if isinstance(correlation_id, str) else correlation_id
