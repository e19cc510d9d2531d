"""The engine's and the adapter's numbers on Triton's metrics port, touched by one thread only."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from oasr_backend.engine import ASREngine
from oasr_backend.engine.metrics import FAMILIES, Family, Scale
from oasr_backend.triton import request_meter
from oasr_backend.triton.real_time_factor import RealTimeFactor
from oasr_backend.triton.request_meter import RequestMeter

_INTERVAL_S = 0.25
_PREFIX = "oasr_"
# Widths up to the largest served batch.
_ROWS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512]
_REAL_TIME_FACTOR = "engine_real_time_factor"
_STARTED, _ALIVE = "model_start_timestamp_seconds", "model_heartbeat_timestamp_seconds"
_KNOWN = {
    **FAMILIES,
    **request_meter.FAMILIES,
    _REAL_TIME_FACTOR: Family("GAUGE", "Audio seconds decoded per second of stepping, in the last 10 s with work"),
    _STARTED: Family("GAUGE", "When the model was loaded, in seconds since 1970"),
    _ALIVE: Family("GAUGE", "When the engine's thread last came by, in seconds since 1970"),
}
_RATIOS = [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0]


@dataclass(frozen=True)
class DeskMetrics:
    """What the adapter counts beside the engine; counters are absolute."""

    counters: dict[str, float]
    gauges: dict[str, float]


def buckets(scale: Scale, chunk_seconds: float) -> list[float]:
    """Edges of a histogram; those of times halve and double the audio of one chunk, the budget of a step."""
    match scale:
        case "rows":
            return list(map(float, _ROWS))
        case "ratio":
            return _RATIOS
        case "seconds":
            return [chunk_seconds * 2.0**power for power in range(-12, 6)]


class MetricsExporter:
    """Copies snapshots of the engine, the requests and the desk into Triton's metric families.

    A histogram that two threads observe ends the whole server, so everything here runs on the engine thread.
    """

    def __init__(
        self,
        pb_utils: Any,
        model: str,
        engine: ASREngine,
        meter: RequestMeter,
        desk: Callable[[], DeskMetrics],
        measures: Iterable[str],
        version: str = "1",
    ):
        """`measures` are the series of `meter`."""
        self._pb_utils = pb_utils
        # Two versions are two processes, and must not write to one series.
        self._labels = {"model": model} if version == "1" else {"model": model, "version": version}
        self._engine = engine
        self._meter = meter
        self._desk = desk
        self._factor = RealTimeFactor()
        self._started = time.time()
        self._families: dict[str, Any] = {}
        self._metrics: dict[tuple[str, str], Any] = {}
        self._chunk_seconds = engine.chunk_seconds
        self._next = 0.0
        for name in (*engine.metric_series, *measures):
            # There from the start, so that a dashboard shows zeros and not gaps.
            self._metric(name, _KNOWN[name.partition(":")[0]].kind)

    def tick(self, now: float) -> None:
        """Exports at most four times a second."""
        if now < self._next:
            return
        self._next = now + _INTERVAL_S
        engine, requests, desk = self._engine.metrics_snapshot(), self._meter.snapshot(), self._desk()
        counters = Counter(engine.counters)
        # Not `|`: both may have dropped samples.
        counters.update(requests.counters)
        counters.update(desk.counters)
        decoded = sum(value for name, value in counters.items() if name.startswith("engine_audio_decoded_seconds:"))
        factor = self._factor.update(now, decoded, counters.get("engine_busy_seconds", 0.0))
        own = {_REAL_TIME_FACTOR: factor, _STARTED: self._started}
        for name, value in {**engine.gauges, **desk.gauges, **own}.items():
            self._metric(name, "GAUGE").set(value)
        for name, value in counters.items():
            counter = self._metric(name, "COUNTER")
            counter.increment(max(0.0, value - counter.value()))
        for name, values in (*engine.samples.items(), *requests.samples.items()):
            histogram = self._metric(name, "HISTOGRAM")
            for value in values:
                histogram.observe(value)
        # Last, so that whoever reads it reads all the others as new as it.
        self._metric(_ALIVE, "GAUGE").set(time.time())

    def _metric(self, name: str, kind: str) -> Any:
        """`family:value` names one metric of a labelled family."""
        family_name, _, label = name.partition(":")
        key = (family_name, label)
        if key not in self._metrics:
            labels = dict(self._labels)
            if label:
                labels[_KNOWN[family_name].label] = label
            options = {}
            if kind == "HISTOGRAM":
                options["buckets"] = buckets(_KNOWN[family_name].scale, self._chunk_seconds)
            self._metrics[key] = self._family(family_name, kind).Metric(labels=labels, **options)
        return self._metrics[key]

    def _family(self, name: str, kind: str) -> Any:
        if name not in self._families:
            suffix = "_total" if kind == "COUNTER" else ""
            known = _KNOWN.get(name)
            self._families[name] = self._pb_utils.MetricFamily(
                name=f"{_PREFIX}{name}{suffix}",
                description=known.help if known else f"{name.replace('_', ' ').capitalize()} of the model",
                kind=getattr(self._pb_utils.MetricFamily, kind),
            )
        return self._families[name]
