"""What the engine counts; a front end reads it and exports it."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal

# Samples a series keeps between two snapshots; more are counted as dropped.
MAX_SAMPLES = 4096

Kind = Literal["COUNTER", "GAUGE", "HISTOGRAM"]
Scale = Literal["seconds", "rows", "ratio"]
"""Which buckets a histogram gets."""


@dataclass(frozen=True)
class Family:
    """A metric family; series of a labelled one are named `family:value`."""

    kind: Kind
    help: str
    label: str = ""
    scale: Scale = "seconds"


STREAMING_STAGES = ("schedule", "allocate", "features", "encode", "decode", "finalize")
OFFLINE_STAGES = ("collate", "encode", "decode", "finalize")

FAMILIES = {
    "engine_stage_host_seconds": Family("HISTOGRAM", "Host time of a step's stage", "stage"),
    "engine_step_seconds": Family("HISTOGRAM", "Time of one batched pass, features to decoding", "mode"),
    "engine_queue_wait_seconds": Family("HISTOGRAM", "Time from admission to the start of work", "mode"),
    "engine_batch_size": Family("HISTOGRAM", "Rows of a batched pass", "mode", "rows"),
    "engine_batch_padding_ratio": Family("HISTOGRAM", "Padding's share of an offline pass' frames", scale="ratio"),
    "engine_running": Family("GAUGE", "Streams that run"),
    "engine_waiting": Family("GAUGE", "Requests that wait"),
    "engine_kv_blocks_used": Family("GAUGE", "Pages of the attention cache in use"),
    "engine_kv_blocks_capacity": Family("GAUGE", "Pages of the attention cache"),
    "engine_decode_slots_in_use": Family("GAUGE", "Streams that hold state"),
    "engine_decode_slots_capacity": Family("GAUGE", "Streams that may hold state"),
    "engine_streaming_graphs": Family("GAUGE", "Shapes of streaming steps that are captured as graphs"),
    "engine_offline_graphs": Family("GAUGE", "Shapes of offline passes that are captured as graphs"),
    "engine_streaming_graph_steps": Family("COUNTER", "Streaming steps, by whether a graph ran them", "outcome"),
    "engine_offline_graph_passes": Family("COUNTER", "Offline passes, by whether a graph ran them", "outcome"),
    "engine_kv_exhausted": Family("COUNTER", "Streams ended at their page ceiling"),
    "engine_tokens_generated": Family("COUNTER", "Tokens of finished outputs"),
    "engine_audio_seconds": Family("COUNTER", "Seconds of audio taken in", "mode"),
    "engine_metric_samples_dropped": Family("COUNTER", "Samples dropped because nobody collected them in time"),
    "requests_admitted": Family("COUNTER", "Requests taken in", "mode"),
    "requests_cancelled": Family("COUNTER", "Requests aborted", "mode"),
    "requests_failed": Family("COUNTER", "Requests ended by an error", "stage"),
}


@dataclass(frozen=True)
class MetricsSnapshot:
    """Counters and gauges are absolute; `samples` are those since the last snapshot."""

    counters: dict[str, float]
    gauges: dict[str, float]
    samples: dict[str, list[float]]


@dataclass
class EngineMetrics:
    """Touched only under the engine's lock; nothing here waits for a device."""

    counters: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gauges: dict[str, float] = field(default_factory=dict)
    _samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def count(self, name: str, amount: float = 1) -> None:
        self.counters[name] += amount

    def observe(self, name: str, value: float) -> None:
        series = self._samples[name]
        if len(series) < MAX_SAMPLES:
            series.append(value)
        else:
            self.counters["engine_metric_samples_dropped"] += 1

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Observes the host time of a block that ends without an error."""
        started = time.perf_counter()
        yield
        self.observe(name, time.perf_counter() - started)

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self.timed(f"engine_stage_host_seconds:{name}")

    def clear(self) -> None:
        """Forgets everything, as after a warm-up."""
        self.counters.clear()
        self._samples.clear()

    def snapshot(self) -> MetricsSnapshot:
        samples = {name: values for name, values in self._samples.items() if values}
        self._samples = defaultdict(list)
        return MetricsSnapshot(dict(self.counters), dict(self.gauges), samples)


def series(streaming: bool, offline: bool) -> tuple[str, ...]:
    """Names of the sampled series that an engine of these kinds may hold."""
    modes = [mode for mode, served in (("streaming", streaming), ("offline", offline)) if served]
    stages = [f"streaming.{stage}" for stage in STREAMING_STAGES if streaming]
    stages += [f"offline.{stage}" for stage in OFFLINE_STAGES if offline]
    labels = {"mode": modes, "stage": stages}
    names: list[str] = []
    for name, family in FAMILIES.items():
        if family.kind != "HISTOGRAM":
            continue
        if family.label:
            names += [f"{name}:{label}" for label in labels[family.label]]
        elif offline:
            names.append(name)
    return tuple(names)
