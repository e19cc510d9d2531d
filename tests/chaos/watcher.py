"""What a server holds over time: memory of its processes, shared memory, pages, threads and open files."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from benchmarks.processes import server_usage
from benchmarks.trend import Trend, trend
from oasr_backend.serve import RunningServer
from oasr_backend.server.workspace import shared_memory_files
from tests.server.support import STREAMING, metrics

_MIB = 1 << 20
_INTERVAL_S = 1.0
IN_USE = {
    "pages in use": "engine_kv_blocks_used",
    "slots in use": "engine_decode_slots_in_use",
    "open sequences": "sequences_open",
}


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
        **{name: values[f'oasr_{metric}{{model="{STREAMING}"}}'] for name, metric in IN_USE.items()},
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

        Pages and slots are not among them: as many are in use as clients come, and what counts is that none is at rest.
        """
        begin = sum(one < warm_up * self.progress[-1] for one in self.progress)
        series = {name: values[begin:] for name, values in self.series.items() if name not in IN_USE}
        x = series.pop("thousand sequences")
        return {name: trend(x, values, seed) for name, values in series.items()}
