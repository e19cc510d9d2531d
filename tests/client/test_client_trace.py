"""`oasr trace` on logs of both formats."""

import json
import logging
from pathlib import Path

import pytest

from oasr_backend.utils.log_lines import event, formatter
from oasr_client.main import main
from oasr_client.tracing import PARTS, NoTrace, read_traces


def chunk(number: int, request: str = "r1", **others: object) -> dict[str, object]:
    return {
        "correlation_id": 42,
        "request_id": request,
        "chunk": number,
        "is_final": number == 3,
        "audio_ms": 640.0,
        "received_ms": 640.0 * (number - 1),
        "queue_ms": 1.0,
        "wait_ms": 2.0,
        "steps": 1,
        "stages_ms": {"schedule": 0.5, "features": 3.0, "encode": 20.0 * number, "decode": 1.0},
        "other_ms": 1.5,
        "send_ms": 1.0,
        "total_ms": 10.0 + 20.0 * number,
        **others,
    }


@pytest.fixture(params=["json", "text"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A server's log as the formatters write it, with lines of others in it."""
    path = tmp_path / "server.log"
    path.write_text('I0101 00:00:00.000000 1 server.cc:1] "started: {1}"\n{"a": 1}\n{broken\n[1]\n')
    handler = logging.FileHandler(path)
    handler.setFormatter(formatter(request.param, model="oasr_streaming"))
    logger = logging.Logger("oasr.trace", logging.INFO)
    logger.addHandler(handler)
    same = {"correlation_id": 42, "request_id": "r1"}
    event(logger, logging.INFO, "stream opened", **same)
    # Senders do not keep the order of lines.
    for number in (2, 1, 3):
        event(logger, logging.INFO, "chunk answered", **chunk(number))
    event(logger, logging.INFO, "stream closed", **same, reason="stop")
    event(logger, logging.INFO, "stream opened", correlation_id=42, request_id="r2")
    event(logger, logging.INFO, "chunk answered", **chunk(1, "r3", correlation_id="weird\x1b[2J id"))
    event(logger, logging.INFO, "chunk answered", **chunk(2, "r3", stages_ms=None))
    handler.close()
    return path


def test_a_stream_is_found_by_both_of_its_ids(log: Path) -> None:
    lines = log.read_text().splitlines()
    (trace,) = read_traces(lines, "42")
    assert read_traces(lines, "r1") == [trace]
    assert (trace.correlation_id, trace.request_id, trace.end) == ("42", "r1", "closed (stop)")
    assert trace.opened.endswith("Z")
    assert [one.number for one in trace.chunks] == [1, 2, 3]
    assert [one.is_final for one in trace.chunks] == [False, False, True]
    for one in trace.chunks:
        assert tuple(one.parts) == PARTS
        assert sum(one.parts.values()) == one.total_ms
        assert one.parts["other"] == 2.0


def test_a_line_of_another_version_is_passed_over(log: Path) -> None:
    (trace,) = read_traces(log.read_text().splitlines(), "r3")
    assert [one.number for one in trace.chunks] == [1] and trace.end == ""


def test_a_stream_without_a_trace_says_how_to_get_one(log: Path) -> None:
    lines = log.read_text().splitlines()
    with pytest.raises(NoTrace, match="was not traced; give its START the option trace=true"):
        read_traces(lines, "r2")
    with pytest.raises(NoTrace, match="holds no stream '43'"):
        read_traces(lines, "43")


@pytest.mark.parametrize("columns", ["80", "200"])
def test_the_command_shows_a_timeline(
    log: Path, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["trace", "42", "--log", str(log)]) == 0
    shown = capsys.readouterr().out
    assert "stream '42', request r1" in shown and "closed (stop)" in shown
    assert "3 chunks; most time: encode" in shown and "slowest: chunk 3, 70.0 ms" in shown
    assert "eeeee" in shown
    assert ("finalize │" in shown or "finalize ┃" in shown) == (columns == "200")


def test_the_command_prints_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "42", "--log", str(log), "--json"]) == 0
    assert [one["total_ms"] for one in json.loads(capsys.readouterr().out)["chunks"]] == [30.0, 50.0, 70.0]


def test_an_id_cannot_move_the_cursor(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "r3", "--log", str(log)]) == 0
    assert "\x1b[2J" not in capsys.readouterr().out


def test_a_log_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "42", "--log", "/nowhere/log"]) == 1
    assert capsys.readouterr().err == "oasr: the log /nowhere/log cannot be read: No such file or directory\n"
