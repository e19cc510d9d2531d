"""What an operator sees of a running server: its metrics, its log, traces of streams."""

import json
from typing import Any

from oasr_backend.serve import RunningServer
from tests.monitoring.files import expressions, metrics_in
from tests.server.support import (
    CHUNK,
    OFFLINE,
    STREAMING,
    Stream,
    Wire,
    clip,
    counter,
    cut,
    eventually,
    gauge,
    metrics,
    new_id,
    oasr,
    refusal,
    settled,
)

# Prometheus' own.
_FOREIGN = {"up"}


def count(server: RunningServer, name: str, model: str = STREAMING, **labels: str) -> float:
    told = ",".join(f'{key}="{value}"' for key, value in sorted({**labels, "model": model}.items()))
    return metrics(server)[f"oasr_{name}{{{told}}}"]


def test_the_server_exports_every_metric_that_dashboard_and_rules_name(server: RunningServer) -> None:
    exported = {name.partition("{")[0] for name in metrics(server)}
    named = {name for expression in expressions() for name in metrics_in(expression.text) if ":" not in name}
    assert named - exported - _FOREIGN == set()


def test_latencies_are_counted_once_an_answer(server: RunningServer) -> None:
    names = ("chunk_latency_seconds_count", "first_partial_seconds_count", "final_latency_seconds_count")
    settled(server)
    before = [count(server, name) for name in names]
    clips = count(server, "clip_latency_seconds_count", OFFLINE)
    pieces = cut(clip("digits.flac"), CHUNK)
    with Wire(server) as wire:
        Stream(wire).play(pieces)
        wire.transcribe(clip("digits.flac"))
    expected = [before[0] + len(pieces) - 1, before[1] + 1, before[2] + 1]
    assert eventually(lambda: [count(server, name) for name in names] == expected)
    assert eventually(lambda: count(server, "clip_latency_seconds_count", OFFLINE) == clips + 1)
    assert 'le="0.64"' in "".join(name for name in metrics(server) if "chunk_latency" in name)


def test_refusals_are_counted_by_code_and_resumed_streams_are_counted(server: RunningServer) -> None:
    settled(server)
    refused = count(server, "requests_refused_total", code="INVALID_OPTION")
    resumed = counter(server, "sequences_resumed")
    # There from the start.
    assert count(server, "requests_refused_total", code="SERVER_FULL") >= 0
    with Wire(server) as wire:
        refusal(lambda: Stream(wire, no_such_option=1).send(clip("digits.flac")))
        Stream(wire, oasr_resumed=True).end()
    assert eventually(lambda: count(server, "requests_refused_total", code="INVALID_OPTION") == refused + 1)
    assert eventually(lambda: counter(server, "sequences_resumed") == resumed + 1)


def test_the_heart_beats_while_nothing_happens(server: RunningServer) -> None:
    first = gauge(server, "model_heartbeat_timestamp_seconds")
    assert gauge(server, "model_start_timestamp_seconds") < first
    assert eventually(lambda: gauge(server, "model_heartbeat_timestamp_seconds") > first)


def test_a_trace_tells_where_the_time_of_every_chunk_went(server: RunningServer) -> None:
    pieces, stream_id = cut(clip("digits.flac"), CHUNK), new_id()
    with Wire(server) as wire:
        Stream(wire, stream_id, trace=True).play(pieces)
        Stream(wire, stream_id).play(pieces)

    def traced() -> list[dict[str, Any]]:
        done = oasr("trace", str(stream_id), "--log", str(server.log_path), "--json")
        return json.loads(done.stdout)["chunks"] if done.returncode == 0 else []

    assert eventually(lambda: len(traced()) == len(pieces))
    for number, chunk in enumerate(traced(), 1):
        assert chunk["number"] == number and chunk["is_final"] == (number == len(pieces))
        parts = chunk["parts"]
        assert parts["features"] > 0
        assert abs(sum(parts.values()) - chunk["total_ms"]) < 0.5
    assert sum(chunk["parts"]["encode"] > 0 for chunk in traced()) >= len(pieces) - 1
    done = oasr("trace", str(stream_id), "--log", str(server.log_path))
    assert done.returncode == 0 and f"{len(pieces)} chunks" in done.stdout and "encode" in done.stdout


def test_no_text_stands_in_the_log(server: RunningServer) -> None:
    with Wire(server) as wire:
        text = Stream(wire, trace=True).play([clip("digits.flac")])[-1]
    assert text and text not in server.log_text()
