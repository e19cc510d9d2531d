"""`oasr trace`: where the time of a stream's chunks went, from the server's log."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oasr_client.tracing import PARTS, ChunkTrace, NoTrace, StreamTrace, read_traces

_WIDTH = 40
_WIDE = 150
# A letter each, for terminals without colours.
_MARKS = {
    "queue": ("q", "red"),
    "wait": ("w", "yellow"),
    "features": ("f", "cyan"),
    "encode": ("e", "blue"),
    "decode": ("d", "magenta"),
    "finalize": ("z", "green"),
    "other": ("o", "white"),
    "send": ("s", "bright_black"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the stream, the log and how to show it."""
    parser.add_argument("id", metavar="ID", help="correlation id of the stream, or the engine's request id")
    parser.add_argument(
        "--log", metavar="FILE", required=True, help="log of the server (oasr serve --log); -: standard input"
    )
    parser.add_argument("--all", action="store_true", help="every stream of this id (default: the last one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per stream")


def run(args: argparse.Namespace) -> int:
    """Prints a table for each stream."""
    traces = _read(args.log, args.id)
    shown = traces if args.all else traces[-1:]
    if args.json:
        for trace in shown:
            print(json.dumps(asdict(trace)))
        return 0
    console = Console(highlight=False)
    for trace in shown:
        _show(console, trace)
    if len(shown) < len(traces):
        console.print(f"{len(traces)} traced streams had this id; --all shows each")
    return 0


def _read(log: str, stream_id: str) -> list[StreamTrace]:
    if log == "-":
        return read_traces(sys.stdin, stream_id)
    try:
        with open(log, encoding="utf-8", errors="replace") as lines:
            return read_traces(lines, stream_id)
    except OSError as error:
        raise NoTrace(f"the log {log} cannot be read: {error.strerror}") from None


def _show(console: Console, trace: StreamTrace) -> None:
    opened = f", opened {trace.opened}" if trace.opened else ""
    title = f"stream {trace.correlation_id!r}, request {trace.request_id}{opened}, {trace.end or 'open'}"
    console.print(Text(title), soft_wrap=True)
    # On a narrow terminal the timeline tells of the parts alone.
    parts = PARTS if console.width >= _WIDE else ()
    table = Table(caption="milliseconds; " + ", ".join(f"{_MARKS[part][0]} {part}" for part in PARTS))
    for heading in ("chunk", "at", "audio", "steps", *parts, "total"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("timeline", no_wrap=True)
    longest = max(chunk.total_ms for chunk in trace.chunks) or 1.0
    for chunk in trace.chunks:
        spent = [*(chunk.parts[part] for part in parts), chunk.total_ms]
        table.add_row(
            f"{chunk.number}{'*' if chunk.is_final else ''}",
            f"{chunk.received_ms:.0f}",
            f"{chunk.audio_ms:.0f}",
            str(chunk.steps),
            *(f"{number:.1f}" for number in spent),
            _timeline(chunk, longest),
        )
    console.print(table)
    console.print(Text(_summary(trace.chunks)), soft_wrap=True)


def _timeline(chunk: ChunkTrace, longest_ms: float) -> Text:
    """The parts of a chunk, as long as they took; the longest chunk fills the width."""
    bar = Text()
    passed, drawn = 0.0, 0
    for part in PARTS:
        passed += chunk.parts[part]
        until = round(_WIDTH * passed / longest_ms)
        mark, style = _MARKS[part]
        bar.append(mark * (until - drawn), style=style)
        drawn = max(drawn, until)
    return bar


def _summary(chunks: Iterable[ChunkTrace]) -> str:
    rows = list(chunks)
    total = sum(chunk.total_ms for chunk in rows) or 1.0
    shares = {part: sum(chunk.parts[part] for chunk in rows) / total for part in PARTS}
    largest = sorted(PARTS, key=lambda part: -shares[part])[:3]
    told = ", ".join(f"{part} {shares[part]:.0%}" for part in largest)
    slowest = max(rows, key=lambda chunk: chunk.total_ms)
    return f"{len(rows)} chunks; most time: {told}; slowest: chunk {slowest.number}, {slowest.total_ms:.1f} ms"
