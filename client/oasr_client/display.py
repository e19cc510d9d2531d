"""Texts in progress: lines that rewrite themselves on a terminal, plain lines elsewhere."""

import threading
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

_SHOWN = 16


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
        self._texts: dict[str, tuple[float, str]] = {}
        self._live = (
            Live(console=console, refresh_per_second=12, transient=True) if partials and console.is_terminal else None
        )

    def partial(self, name: str) -> Callable[[float, str], None]:
        """A callback for the stream called `name`, taking seconds of audio sent and the text so far."""

        def show(sent_s: float, text: str) -> None:
            with self._lock:
                changed = self._texts.get(name, (0.0, ""))[1] != text
                self._texts[name] = (sent_s, text)
                if not self._partials:
                    return
                if self._live:
                    self._live.update(self._table())
                elif changed:
                    self.print(f"{name}  {sent_s:6.2f} s  {text}")

        return show

    def done(self, name: str) -> None:
        """Takes a finished stream off the terminal."""
        with self._lock:
            self._texts.pop(name, None)
            if self._live:
                self._live.update(self._table())

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
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(justify="right", style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, (sent_s, text) in list(self._texts.items())[:_SHOWN]:
            table.add_row(Text(name), f"{sent_s:.1f} s", Text(text))
        return table


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
