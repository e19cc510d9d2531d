"""Traces of streams out of a server's log: where each millisecond of a chunk went."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from oasr_client.errors import OasrError

PARTS = ("queue", "wait", "features", "encode", "decode", "finalize", "other", "send")
"""What the way of a chunk is made of, in order: until the engine takes it; until others have come, or between its
steps; the stages of its steps; the rest of its steps; handing the answer over."""

_OPENED = "stream opened"
_ANSWERED = "chunk answered"
_ENDS = frozenset({"stream closed", "stream failed", "stream reaped", "stream abandoned"})


class NoTrace(OasrError):
    """The log cannot be read, or holds no trace of the stream."""


@dataclass(frozen=True)
class ChunkTrace:
    """One request of a stream. Times in milliseconds; `received_ms` counts from the arrival of START, `parts` (by the
    names of PARTS) add up to `total_ms`.
    """

    number: int
    is_final: bool
    audio_ms: float
    received_ms: float
    steps: int
    parts: Mapping[str, float]
    total_ms: float


@dataclass(frozen=True)
class StreamTrace:
    """One stream; `end` says how it ended as the log has it, "" while it is open."""

    correlation_id: str
    request_id: str
    opened: str
    end: str
    chunks: tuple[ChunkTrace, ...]


def read_traces(lines: Iterable[str], stream_id: str) -> list[StreamTrace]:
    """The streams of a correlation id or engine request id, in the order in which they began.

    Reads logs of both formats; lines of anybody else are passed over.

    Raises:
        NoTrace: no stream has the id, or none of those that have it was traced.
    """
    events: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        fields = _fields_of(line)
        if fields is not None and stream_id in (str(fields["correlation_id"]), str(fields["request_id"])):
            events.setdefault(str(fields["request_id"]), []).append(fields)
    if not events:
        raise NoTrace(f"the log holds no stream {stream_id!r}; streams are logged with log_level=INFO, or when traced")
    traces = [_trace_of(request_id, rows) for request_id, rows in events.items()]
    traced = [trace for trace in traces if trace.chunks]
    if not traced:
        raise NoTrace(
            f"stream {stream_id!r} was not traced; give its START the option trace=true, or start the server with "
            "--set trace_share=1"
        )
    return traced


def _fields_of(line: str) -> Mapping[str, Any] | None:
    """The fields of a line that tells of a stream, with its message and time."""
    if line.startswith("{"):
        fields = _parsed(line)
    else:
        # TIME oasr LEVEL MODEL LOGGER: message {fields}
        head, brace, rest = line.partition(": ")
        message, brace, rest = rest.partition(" {")
        fields = _parsed(brace.strip() + rest) if brace else None
        if fields is not None:
            fields = {**fields, "message": message, "time": head.split(" ", 1)[0]}
    if fields is None or not {"correlation_id", "request_id", "message"} <= fields.keys():
        return None
    return fields


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _trace_of(request_id: str, rows: list[Mapping[str, Any]]) -> StreamTrace:
    chunks = [chunk for row in rows if row["message"] == _ANSWERED and (chunk := _chunk_of(row)) is not None]
    opened = next((str(row.get("time", "")) for row in rows if row["message"] == _OPENED), "")
    end = next((_end_of(row) for row in rows if row["message"] in _ENDS), "")
    in_order = tuple(sorted(chunks, key=lambda chunk: chunk.number))
    return StreamTrace(str(rows[0]["correlation_id"]), request_id, opened, end, in_order)


def _end_of(row: Mapping[str, Any]) -> str:
    message = str(row["message"]).removeprefix("stream ")
    return f"{message} ({row['reason']})" if row.get("reason") else message


def _chunk_of(row: Mapping[str, Any]) -> ChunkTrace | None:
    """None for a line that another version wrote."""
    try:
        stages = {str(name): float(value) for name, value in row["stages_ms"].items()}
        parts = {name: stages.pop(name, 0.0) for name in PARTS}
        for name in ("queue", "wait", "send"):
            parts[name] = float(row[f"{name}_ms"])
        # With the stages that are too short to be shown.
        parts["other"] += float(row["other_ms"]) + sum(stages.values())
        return ChunkTrace(
            int(row["chunk"]),
            bool(row["is_final"]),
            float(row["audio_ms"]),
            float(row["received_ms"]),
            int(row["steps"]),
            parts,
            float(row["total_ms"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
