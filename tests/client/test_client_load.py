"""Streams in real time: what is said of them, and the command that looks for the largest number."""

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oasr_client import main as command
from oasr_client.commands import bench
from oasr_client.errors import AudioError, MissingExtra, OasrError, ServerUnavailable, ServerUnreachable
from oasr_client.load import plot
from oasr_client.load.recordings import recording
from oasr_client.load.report import CapacityReport
from oasr_client.load.run import Answer, LoadRun
from oasr_client.load.step import Step, Verdict, judge
from oasr_client.load.streams import Target
from oasr_client.load.times import Times

CHUNK_S = 0.64


def run_of(
    latencies_s: tuple[float, ...] = (0.1,),
    texts: tuple[str | None, ...] = ("a",),
    errors: tuple[OasrError, ...] = (),
    **more: Any,
) -> LoadRun:
    answers = tuple(
        Answer(0, number * CHUNK_S, number * CHUNK_S, number * CHUNK_S + one) for number, one in enumerate(latencies_s)
    )
    return LoadRun(answers, texts, errors, CHUNK_S, **more)


def step_of(streams: int, run: LoadRun) -> Step:
    return Step(streams, run, judge(run, 0))


def report_of(*steps: Step) -> CapacityReport:
    found = max((step.streams for step in steps if step.verdict.passes), default=0)
    return CapacityReport(Target("127.0.0.1:8001"), 30.0, 256, found, steps)


# figures


def test_throughput_counts_while_every_stream_is_at_work() -> None:
    # One stream starts late, the other ends early: both answer between 2 and 4.
    moments = {0: [1.0, 2.5, 3.0, 4.0], 1: [2.0, 3.5, 4.0, 9.0]}
    answers = tuple(Answer(stream, one, one, one) for stream, ones in moments.items() for one in ones)
    run = LoadRun(answers, ("", ""), (), CHUNK_S)
    assert run.times_real_time == pytest.approx(5 * CHUNK_S / 2)


def test_a_client_is_late_only_by_its_own_fault() -> None:
    answers = (Answer(0, 0.0, 0.01, 1.0), Answer(0, 0.64, 1.02, 1.1), Answer(0, 1.28, 1.28, 1.3))
    run = LoadRun(answers, ("",), (), CHUNK_S)
    assert run.client_lag.milliseconds == pytest.approx((10, 20, 0))
    assert run.latency.milliseconds == pytest.approx((1000, 460, 20))


def test_a_client_that_wakes_up_late_is_late_though_its_chunks_wait_for_answers() -> None:
    assert run_of(lags_s=(0.0, 0.3, 0.3)).client_lag.p99 == pytest.approx(300)


def test_figures_of_nothing_are_zero() -> None:
    nothing = Times(())
    assert (nothing.median, nothing.p99, nothing.maximum) == (0, 0, 0)


def test_the_final_latency_is_that_of_the_last_chunks() -> None:
    answers = (Answer(0, 0.0, 0.0, 0.5), Answer(0, 0.64, 0.64, 0.74, is_final=True))
    assert LoadRun(answers, ("a",), (), CHUNK_S).final_latency.milliseconds == pytest.approx((100,))


# recordings


def test_recordings_have_their_length_and_begin_with_different_clips() -> None:
    clips = [np.full(1000, 0.25, np.float32), np.full(500, -0.5, np.float32)]
    first, second = (recording(clips, 0.2, variant) for variant in range(2))
    assert len(first) == len(second) == 3200
    assert first.dtype == np.int16
    assert first[0] == 8192 and second[0] == -16384
    assert first[1500] == first[0]


def test_clips_without_audio_make_no_recording() -> None:
    with pytest.raises(AudioError, match="no audio"):
        recording([np.zeros(0, np.float32)], 1.0)


# verdicts


@pytest.mark.parametrize(
    ("run", "differing", "kind"),
    [
        (run_of(), 0, "passes"),
        (run_of((0.1, 0.7)), 0, "late"),
        (run_of((0.1,), gave_up=True), 0, "late"),
        (run_of(lags_s=(0.2, 0.2)), 0, "client_late"),
        (run_of(), 1, "texts_differ"),
        (run_of(errors=(ServerUnavailable("SERVER_FULL: 4 streams", status="UNAVAILABLE"),)), 0, "refused"),
        (run_of(errors=(ServerUnreachable("gone", status="UNAVAILABLE"),)), 0, "lost"),
        (run_of(errors=(OasrError("broken"),)), 1, "failed"),
    ],
)
def test_a_load_passes_or_says_why_not(run: LoadRun, differing: int, kind: str) -> None:
    verdict = judge(run, differing)
    assert verdict.kind == kind
    assert verdict.passes == (not verdict.sentence)
    for error in run.errors:
        assert str(error) in verdict.sentence


def test_some_texts_may_differ_where_that_is_allowed() -> None:
    assert judge(run_of(texts=("a",) * 10), 2, allowed=2).passes


def test_a_late_client_is_told_beside_a_late_server() -> None:
    assert "this client was late itself by 300 ms" in judge(run_of((2.0,), lags_s=(0.3,)), 0).sentence


# the report


def test_the_report_tells_the_capacity_and_what_stops_it() -> None:
    report = report_of(step_of(8, run_of()), step_of(16, run_of((0.9,))), step_of(12, run_of((0.8,))))
    assert report.lines[0].startswith("capacity: 8 streams")
    assert report.lines[1].startswith("what stops it at 12: late")
    document = json.loads(json.dumps(report.document))
    assert document["streams"] == 8
    assert document["stopped_by"]["streams"] == 12
    assert [step["verdict"] for step in document["steps"]] == ["passes", "late", "late"]
    assert len(document["latency_ms_by_percentile"]) == 101
    assert document["latency_ms_by_percentile"][50] == pytest.approx(100)


def test_a_report_of_no_stream_says_why() -> None:
    report = report_of(step_of(1, run_of((0.9,))))
    assert report.lines == [f"not one stream passes: {report.steps[0].verdict.sentence}"]
    assert report.document["latency_ms_by_percentile"] == []


def test_a_report_without_a_failure_names_the_bound_of_the_search() -> None:
    assert "--max" in report_of(step_of(256, run_of())).lines[0]


# the picture


@pytest.mark.parametrize(
    "steps",
    [
        (step_of(8, run_of((0.1, 0.2))), step_of(16, run_of((0.9,)))),
        (step_of(1, LoadRun((), (None,), (OasrError("broken"),), CHUNK_S)),),
    ],
)
def test_the_picture_is_a_png(steps: tuple[Step, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot.draw(report_of(*steps), tmp_path / "latency.png")
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(MissingExtra, match=r"oasr-triton\[plot\]"):
        plot.figure_module()


# the command


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers that the command tries; the server holds 20, refuses from 24 on and is gone at 100."""
    numbers: list[int] = []

    def try_streams(target: Target, streams: int, *rest: Any) -> Step:
        numbers.append(streams)
        run = run_of() if streams <= 20 else run_of((0.8,))
        if streams >= 100:
            run = run_of(errors=(ServerUnreachable("the server is gone"),))
        elif streams >= 24:
            run = run_of(errors=(ServerUnavailable("SERVER_FULL: too many", status="UNAVAILABLE"),))
        return step_of(streams, run)

    monkeypatch.setattr(bench, "try_streams", try_streams)
    monkeypatch.setattr(bench, "texts_alone", lambda target, waves: ["a"] * len(waves))
    return numbers


def test_the_command_prints_every_number_and_writes_the_figures(
    tried: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "bench.json"
    assert command.main(["bench", "--start", "8", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    for streams in tried:
        assert f"{streams} streams: " in printed
    assert "capacity: 20 streams" in printed or "capacity: 19 streams" in printed
    assert json.loads(path.read_text())["streams"] == max(one for one in tried if one <= 20)


def test_a_lost_server_ends_the_search_with_what_was_measured(
    tried: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["bench", "--start", "100"]) == 1
    assert tried == [100]
    assert "the server is gone" in capsys.readouterr().out


def test_the_command_refuses_before_it_measures(
    tried: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert command.main(["bench", "--json", str(tmp_path / "file" / "bench.json")]) == 2
    assert "cannot write" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["bench", "--differing", "2"])
    assert "is not a share between 0 and 1" in capsys.readouterr().err
    assert tried == []


def test_a_server_that_is_not_there_is_one_line(refusing_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench", "--server", f"127.0.0.1:{refusing_port}"]) == 1
    assert "cannot reach the server" in capsys.readouterr().err


def test_the_command_imports_no_matplotlib() -> None:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    assert parser.parse_args([]).plot is None
    assert "matplotlib" not in vars(plot)


def test_a_verdict_without_a_reason_passes() -> None:
    assert Verdict().passes
