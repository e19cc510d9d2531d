"""What a server holds over time: memory of its processes, shared memory, pages, threads and open files."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from benchmarks.processes import server_usage
from benchmarks.trend import Trend, trend
from oasr_backend.serve import RunningServer
from oasr_backend.server.workspace import shared_memory_files
from tests.server.support import STREAMING, metrics

_MIB = 1 << 20
_INTERVAL_S = 1.0


def shared_memory_mib(prefix: str) -> float:
    """What the files of a server in /dev/shm take up."""
    blocks = 0
    for path in shared_memory_files(prefix):
        try:
            blocks += path.stat().st_blocks
        except FileNotFoundError:
            continue
    return blocks * 512 / _MIB


def _count(pid: int, folder: str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())


def holdings(server: RunningServer) -> dict[str, float]:
    """What the server holds now, by name with its unit."""
    usages = server_usage(server.pid)
    values = metrics(server)
    return {
        "tritonserver, MiB": usages["tritonserver"].resident_mib,
        "streaming engine, MiB": usages[STREAMING].resident_mib,
        "/dev/shm, MiB": shared_memory_mib(server.shm_prefix),
        "pages in use": values[f'oasr_engine_kv_blocks_used{{model="{STREAMING}"}}'],
        "slots in use": values[f'oasr_engine_decode_slots_in_use{{model="{STREAMING}"}}'],
        "open sequences": values[f'oasr_sequences_open{{model="{STREAMING}"}}'],
        "threads of tritonserver": _count(server.pid, "task"),
        "open files of tritonserver": _count(server.pid, "fd"),
        "open files of the streaming engine": _count(usages[STREAMING].pid, "fd"),
    }


@dataclass
class Watcher:
    """Takes down once a second what a server holds, against how much was done.

    Attributes:
        progress: thousands of sequences that were done.
        rows: the holdings then.
    """

    server: RunningServer
    done: Callable[[], int]
    progress: list[float] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watcher":
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(60)

    def _watch(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            done = self.done() / 1000
            if not self.progress or done > self.progress[-1]:
                self.rows.append(holdings(self.server))
                self.progress.append(done)

    @property
    def series(self) -> dict[str, list[float]]:
        """All that was taken down."""
        return {
            "thousand sequences": self.progress,
            **{name: [row[name] for row in self.rows] for name in self.rows[0]},
        }

    def trends(self, seed: int, warm_up: float) -> dict[str, Trend]:
        """By thousand sequences; without the first share of them, in which buffers reach their size.

        Of pages and slots what open streams do not explain, as many of those are open as clients come.
        """
        begin = sum(one < warm_up * self.progress[-1] for one in self.progress)
        series = {name: np.array(values[begin:]) for name, values in self.series.items()}
        x = series.pop("thousand sequences")
        pages, slots, sequences = (series.pop(name) for name in ("pages in use", "slots in use", "open sequences"))
        series["pages in use beside those of open streams"] = pages - slots * pages.mean() / slots.mean()
        series["slots in use without a sequence"] = slots - sequences
        return {name: trend(x.tolist(), values.tolist(), seed) for name, values in series.items()}
