"""Texts in progress: lines that rewrite themselves on a terminal, plain lines elsewhere."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from oasr_client.playback import Progress
from oasr_client.session import StreamResponse

_SHOWN = 16
_WIDE = 240


@dataclass
class _Row:
    """A stream in progress."""

    sent_s: float = 0.0
    final: str = ""
    partial: str = ""
    resumes: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def take(self, progress: Progress) -> None:
        """Takes an answer in."""
        self.sent_s = progress.sent_s
        self.resumes = progress.response.resumes
        self.latencies_s.append(progress.latency_s)
        self.final, self.partial = parts(progress.response)


class Display:
    """Shows the streams in progress; safe to use from many threads.

    Args:
        console: where to print; it is asked whether it is a terminal.
        partials: show texts in progress at all.
    """

    def __init__(self, console: Console, partials: bool = True) -> None:
        self._console = console
        self._partials = partials
        self._lock = threading.Lock()
        self._rows: dict[str, _Row] = {}
        self._live = (
            Live(console=console, refresh_per_second=8, transient=True, get_renderable=self._table)
            if partials and console.is_terminal
            else None
        )

    @property
    def is_live(self) -> bool:
        """Whether lines rewrite themselves."""
        return self._live is not None

    def progress(self, name: str) -> Callable[[Progress], None]:
        """A callback for the stream called `name`."""

        def show(progress: Progress) -> None:
            with self._lock:
                row = self._rows.setdefault(name, _Row())
                before, resumes = (row.final, row.partial), row.resumes
                row.take(progress)
                is_new = (row.final, row.partial) != before
                was_resumed = row.resumes > resumes
            # Without the lock, which whoever draws takes while holding the console's.
            if was_resumed and self._partials:
                self.print(f"{name}  resumed after {progress.sent_s:.2f} s", style="yellow")
            if self._partials and not self._live and is_new:
                self.print(f"{name}  {progress.sent_s:6.2f} s  {progress.response.text}")

        return show

    def done(self, name: str) -> None:
        """Takes a finished stream off the terminal."""
        with self._lock:
            self._rows.pop(name, None)

    def print(self, line: str, style: str = "") -> None:
        """Prints a line above the streams in progress, unwrapped and without markup."""
        self._console.print(Text(line, style=style), soft_wrap=True)

    def __enter__(self) -> "Display":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True, max_width=24)
        for _ in range(3):
            table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        with self._lock:
            rows = list(self._rows.items())
            for name, row in rows[:_SHOWN]:
                half, most = np.percentile(row.latencies_s, (50, 99))
                figures = f"p50 {milliseconds(half)} p99 {milliseconds(most)}"
                factor = f"RTF {sum(row.latencies_s) / row.sent_s:.3f}" if row.sent_s else ""
                text = Text.assemble((last_of(row.final), "dim"), " " if row.final else "", last_of(row.partial))
                table.add_row(Text(name), f"{row.sent_s:.1f} s", figures, factor, text)
        if len(rows) > _SHOWN:
            table.add_row(f"and {len(rows) - _SHOWN} more")
        return table


def parts(response: StreamResponse) -> tuple[str, str]:
    """The last text that is final, and the one in progress; without RESULT all of it is in progress."""
    segments = (response.result or {}).get("segments")
    if segments is None:
        return "", response.text
    finals = [segment["text"] for segment in segments if segment["is_final"]]
    return finals[-1] if finals else "", " ".join(segment["text"] for segment in segments if not segment["is_final"])


def last_of(text: str) -> str:
    """The end of a long text."""
    return text if len(text) <= _WIDE else "…" + text[-_WIDE:]


def milliseconds(seconds: float) -> str:
    """A latency for reading, such as `12 ms` or `0.4 ms`."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 9.95 else f"{value:.1f} ms"


def speed(real_time_factor: float) -> str:
    """A real-time factor with its inverse, such as `0.021 (48 x real time)`."""
    if real_time_factor <= 0:
        return "0"
    return f"{real_time_factor:.3g} ({1 / real_time_factor:.3g} x real time)"


def failure_line(source: str, error: Exception) -> str:
    """One line on a file that failed; the file is named once."""
    return f"oasr: {error}" if source in str(error) else f"oasr: {source}: {error}"
