"""What the engine counts; a front end reads it and exports it."""

from collections import defaultdict
from dataclasses import dataclass, field

# Samples a series keeps between two snapshots; more are counted as dropped.
MAX_SAMPLES = 4096


@dataclass(frozen=True)
class MetricsSnapshot:
    """Counters and gauges are absolute; `samples` are those since the last snapshot."""

    counters: dict[str, float]
    gauges: dict[str, float]
    samples: dict[str, list[float]]


@dataclass
class EngineMetrics:
    """Touched only under the engine's lock."""

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
            self.counters["metric_samples_dropped"] += 1

    def clear(self) -> None:
        """Forgets everything, as after a warm-up."""
        self.counters.clear()
        self._samples.clear()

    def snapshot(self) -> MetricsSnapshot:
        samples = {name: values for name, values in self._samples.items() if values}
        self._samples = defaultdict(list)
        return MetricsSnapshot(dict(self.counters), dict(self.gauges), samples)
