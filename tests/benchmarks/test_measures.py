"""Numbers that are made of measured ones."""

import json
import os
from pathlib import Path

import pytest

from benchmarks.clips import by_length, mixed_clips, padding_factor
from benchmarks.processes import cpu_seconds, role_of
from benchmarks.reporting import Report, publish, shown
from benchmarks.serving import settings_of
from benchmarks.targets import TARGETS
from benchmarks.timing import interleaved
from oasr_client.load.times import Times


def test_times_give_median_p99_and_maximum() -> None:
    times = Times.of_seconds([one / 1000 for one in range(1, 102)])
    assert times.median == pytest.approx(51)
    assert times.p99 == pytest.approx(100)
    assert times.maximum == pytest.approx(101)


def test_arms_take_turns_and_the_first_rounds_do_not_count() -> None:
    calls: list[str] = []

    def arm(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds

    times = interleaved({"a": lambda: arm("a", 0.1), "b": lambda: arm("b", 0.2)}, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert len(times["a"].milliseconds) == 2
    assert times["b"].median == pytest.approx(200)


def test_a_target_holds_from_its_side() -> None:
    assert TARGETS["target1_step_over_gemm_bound"].is_met(1.35)
    assert not TARGETS["target1_step_over_gemm_bound"].is_met(1.36)
    assert TARGETS["target4_throughput_over_onnx"].is_met(3.0)
    assert not TARGETS["target4_throughput_over_onnx"].is_met(2.9)


def test_the_document_has_flat_ratios_and_says_which_targets_are_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(
        benchmark="some",
        dtype="float32",
        threads=2,
        settings={"rounds": 3},
        tables={"steps": [{"streams": 1, "median ms": 12.345}]},
        ratios={"target2_one_stream_step_ms": 12.345, "other": 2.0},
    )
    publish(report, tmp_path / "some.json")
    document = json.loads((tmp_path / "some.json").read_text())
    assert document["ratios"] == {"target2_one_stream_step_ms": 12.345, "other": 2.0}
    assert document["targets"] == {"target2_one_stream_step_ms": {"bound": 12.0, "at_most": True, "met": False}}
    assert document["tables"]["steps"] == [{"streams": 1, "median ms": 12.345}]
    assert {"processor", "commit", "torch", "threads", "dtype", "settings"} <= document.keys()
    printed = capsys.readouterr().out
    assert "12.3" in printed and "missed" in printed


def test_numbers_are_shown_with_three_digits() -> None:
    assert [shown(one) for one in (0.01234, 1.5, 12345.6, 7, "text", None)] == [
        "0.0123",
        "1.5",
        "12346",
        "7",
        "text",
        "",
    ]


def test_padding_counts_frames_beside_those_of_the_longest() -> None:
    lengths = [10, 2, 4, 8]
    assert by_length(lengths, 2) == [[1, 2], [3, 0]]
    assert padding_factor(lengths, [[1, 2], [3, 0]]) == pytest.approx((4 * 2 + 10 * 2) / 24)
    assert padding_factor(lengths, [[0], [1], [2], [3]]) == 1.0


def test_mixed_clips_span_the_lengths_in_no_order() -> None:
    seconds = [len(clip) / 16_000 for clip in mixed_clips(14)]
    assert (min(seconds), max(seconds)) == (2.0, 15.0)
    assert seconds != sorted(seconds)


def test_roles_are_read_from_command_lines() -> None:
    stub = "/x/backends/python/triton_python_backend_stub\0/x/models/oasr_offline/1/model.py\0prefix\0"
    assert role_of(stub) == "oasr_offline"
    assert role_of("/x/bin/tritonserver\0--model-repository=/x\0") == "tritonserver"
    assert role_of("") == ""


def test_cpu_time_is_read_past_a_name_with_brackets() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = f"7 (a (b) c) S 1 7 7 0 -1 0 1 2 3 4 {2 * ticks} {3 * ticks} 0 0 20"
    assert cpu_seconds(line) == pytest.approx(5.0)


def test_settings_of_an_arm_are_ours_unless_they_look_like_the_process_own() -> None:
    assert settings_of("num_threads=1,GOMP_SPINCOUNT=1000") == {"OASR_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
    assert settings_of("") == {}
