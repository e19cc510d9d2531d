"""The engine's and the adapter's numbers on Triton's metrics port, touched by one thread only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oasr_backend.engine import ASREngine

_INTERVAL_S = 0.25
_PREFIX = "oasr_"
# Widths up to the largest served batch.
_BATCH_BUCKETS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256]
# Edged at the frame budget of a 640 ms chunk and its fractions.
_SECONDS_BUCKETS = [0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12]
_RATIO_BUCKETS = [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0]
_BUCKETS = {"batch_size": _BATCH_BUCKETS, "step_seconds": _SECONDS_BUCKETS, "padding_ratio": _RATIO_BUCKETS}


@dataclass(frozen=True)
class DeskMetrics:
    """What the adapter counts beside the engine; counters are absolute."""

    counters: dict[str, float]
    gauges: dict[str, float]


class MetricsExporter:
    """Copies a snapshot of the engine and the desk into Triton's metric families.

    A histogram that two threads observe ends the whole server, so everything here runs on the engine thread.
    """

    def __init__(self, pb_utils: Any, model: str, engine: ASREngine, desk: Callable[[], DeskMetrics]):
        self._pb_utils = pb_utils
        self._model = model
        self._engine = engine
        self._desk = desk
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, str], Any] = {}
        self._next = 0.0
        for name in engine.metric_series:
            # There from the start, so that a dashboard shows zeros and not gaps.
            self._metric(name, "HISTOGRAM")

    def tick(self, now: float) -> None:
        """Exports at most four times a second."""
        if now < self._next:
            return
        self._next = now + _INTERVAL_S
        snapshot, desk = self._engine.metrics_snapshot(), self._desk()
        for name, value in {**snapshot.gauges, **desk.gauges}.items():
            self._metric(name, "GAUGE").set(value)
        for name, value in {**snapshot.counters, **desk.counters}.items():
            counter = self._metric(name, "COUNTER")
            counter.increment(max(0.0, value - counter.value()))
        for name, values in snapshot.samples.items():
            histogram = self._metric(name, "HISTOGRAM")
            for value in values:
                histogram.observe(value)

    def _metric(self, name: str, kind: str) -> Any:
        """`family:label` names one metric of a family; the label is a mode or a stage."""
        family_name, _, label = name.partition(":")
        key = (family_name, label)
        if key not in self._metrics:
            labels = {"model": self._model}
            if label:
                labels["stage" if family_name == "requests_failed" else "mode"] = label
            options = {"buckets": _BUCKETS[family_name]} if kind == "HISTOGRAM" else {}
            self._metrics[key] = self._family(family_name, kind).Metric(labels=labels, **options)
        return self._metrics[key]

    def _family(self, name: str, kind: str) -> Any:
        if name not in self._families:
            suffix = "_total" if kind == "COUNTER" else ""
            self._families[name] = self._pb_utils.MetricFamily(
                name=f"{_PREFIX}{name}{suffix}",
                description=f"{name.replace('_', ' ')} of the recognition engine",
                kind=getattr(self._pb_utils.MetricFamily, kind),
            )
        return self._families[name]
