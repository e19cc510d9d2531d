"""What the engine counts; a front end reads it and exports it."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, get_args

from oasr_backend.engine.request import ErrorStage
from oasr_backend.graphs.cache import Outcome
from oasr_backend.utils.ranges import Ranges

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
# What a profiler calls the stages.
_RANGES = {
    "streaming.schedule": "schedule",
    "streaming.allocate": "allocate_stream",
    "streaming.features": "extract_fbank",
    "streaming.encode": "forward_streaming",
    "streaming.decode": "decode_streaming",
    "streaming.finalize": "finalize_streams",
    "offline.encode": "offline.forward",
}

FAMILIES = {
    "engine_stage_host_seconds": Family("HISTOGRAM", "Host time of a step's stage", "stage"),
    "engine_step_seconds": Family("HISTOGRAM", "Time of one batched pass, features to decoding", "mode"),
    "engine_queue_wait_seconds": Family("HISTOGRAM", "Time from admission to the start of work", "mode"),
    "engine_batch_size": Family("HISTOGRAM", "Rows of a batched pass", "mode", "rows"),
    "engine_batch_padding_ratio": Family("HISTOGRAM", "Padding's share of an offline pass' frames", scale="ratio"),
    "engine_running": Family("GAUGE", "Streams that run"),
    "engine_waiting": Family("GAUGE", "Requests that wait"),
    "engine_chunk_seconds": Family("GAUGE", "Audio of one chunk: what a step may take when streams are to keep up"),
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
    "engine_audio_decoded_seconds": Family("COUNTER", "Seconds of audio decoded, padding silence included", "mode"),
    "engine_busy_seconds": Family("COUNTER", "Seconds spent in steps"),
    "engine_metric_samples_dropped": Family("COUNTER", "Samples dropped because nobody collected them in time"),
    "requests_admitted": Family("COUNTER", "Requests taken in", "mode"),
    "requests_cancelled": Family("COUNTER", "Requests aborted", "mode"),
    "requests_failed": Family("COUNTER", "Requests ended by an error", "stage"),
}
# Of engines of one kind alone; the others have a label that says so, or are of both.
_OF_CLIPS = frozenset({"engine_batch_padding_ratio", "engine_offline_graph_passes"})
_OF_STREAMS = frozenset({"engine_streaming_graph_steps", "engine_kv_exhausted"})


@dataclass(frozen=True)
class MetricsSnapshot:
    """Counters and gauges are absolute; `samples` are those since the last snapshot."""

    counters: dict[str, float]
    gauges: dict[str, float]
    samples: dict[str, list[float]]


@dataclass(frozen=True)
class TimeSpent:
    """Where the engine's time went so far: steps, seconds in them, and the host seconds of their stages."""

    steps: int = 0
    seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)

    def since(self, earlier: "TimeSpent") -> "TimeSpent":
        """What was spent after an earlier reading."""
        stages = {name: seconds - earlier.stages.get(name, 0.0) for name, seconds in self.stages.items()}
        used = {name: seconds for name, seconds in stages.items() if seconds}
        return TimeSpent(self.steps - earlier.steps, self.seconds - earlier.seconds, used)


@dataclass
class EngineMetrics:
    """Touched only under the engine's lock; nothing here waits for a device."""

    seconds_per_frame: float = 0.0
    """Audio per encoder frame."""
    ranges: Ranges = field(default_factory=Ranges)
    counters: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gauges: dict[str, float] = field(default_factory=dict)
    _samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _steps: int = 0

    @property
    def spent(self) -> TimeSpent:
        return TimeSpent(self._steps, self.counters["engine_busy_seconds"], dict(self._stages))

    def count(self, name: str, amount: float = 1) -> None:
        self.counters[name] += amount

    def observe(self, name: str, value: float) -> None:
        series = self._samples[name]
        if len(series) < MAX_SAMPLES:
            series.append(value)
        else:
            self.counters["engine_metric_samples_dropped"] += 1

    def decoded(self, mode: str, frames: int) -> None:
        """Counts encoder frames that were decoded."""
        self.count(f"engine_audio_decoded_seconds:{mode}", frames * self.seconds_per_frame)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Counts the time of a whole step, however it ends."""
        started = time.perf_counter()
        try:
            with self.ranges("engine.step"):
                yield
        finally:
            self._steps += 1
            self.count("engine_busy_seconds", time.perf_counter() - started)

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Observes the host time of a block that ends without an error."""
        return _Stage(self, name, self.ranges(_RANGES.get(name, name)))

    def end_stage(self, name: str, seconds: float) -> None:
        self._stages[name] += seconds
        self.observe(f"engine_stage_host_seconds:{name}", seconds)

    def clear(self) -> None:
        """Forgets everything, as after a warm-up."""
        self.counters.clear()
        self._samples.clear()
        self._stages.clear()
        self._steps = 0

    def snapshot(self) -> MetricsSnapshot:
        samples = {name: values for name, values in self._samples.items() if values}
        self._samples = defaultdict(list)
        return MetricsSnapshot(dict(self.counters), dict(self.gauges), samples)


class _Stage:
    """A class and no generator: there are several in every step."""

    __slots__ = ("_metrics", "_name", "_range", "_started")

    def __init__(self, metrics: EngineMetrics, name: str, profiled: AbstractContextManager[None]):
        self._metrics = metrics
        self._name = name
        self._range = profiled
        self._started = 0.0

    def __enter__(self) -> None:
        self._range.__enter__()
        self._started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._started
        self._range.__exit__(kind, error, trace)
        if kind is None:
            self._metrics.end_stage(self._name, seconds)


def series(streaming: bool, offline: bool) -> tuple[str, ...]:
    """Names of the histograms and counters that an engine of these kinds may hold."""
    modes = [mode for mode, served in (("streaming", streaming), ("offline", offline)) if served]
    stages = [f"streaming.{stage}" for stage in STREAMING_STAGES if streaming]
    stages += [f"offline.{stage}" for stage in OFFLINE_STAGES if offline]
    labels = {"mode": modes, "stage": stages, "outcome": get_args(Outcome)}
    names: list[str] = []
    for name, family in FAMILIES.items():
        if family.kind == "GAUGE" or (name in _OF_CLIPS and not offline) or (name in _OF_STREAMS and not streaming):
            continue
        if family.label:
            values = get_args(ErrorStage) if name == "requests_failed" else labels[family.label]
            names += [f"{name}:{value}" for value in values]
        else:
            names.append(name)
    return tuple(names)
