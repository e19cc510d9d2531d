"""What becomes of streams, as the log, the histograms and the traces tell it; the clock is ours."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from oasr_backend.engine.metrics import TimeSpent
from oasr_backend.engine.request import RequestOutput
from oasr_backend.triton.errors import full, internal_error, invalid_option
from oasr_backend.triton.request_meter import CHUNK, FINAL, FIRST_PARTIAL, RequestMeter
from oasr_backend.triton.request_options import StreamOptions
from oasr_backend.triton.stream_watch import ChunkRecord, StreamWatch

RATE = 1000
REQUEST = "r"


class Dice:
    """Rolls what it was told to."""

    def __init__(self, *rolls: float):
        self._rolls = list(rolls)

    def random(self) -> float:
        return self._rolls.pop(0)


@dataclass
class Bench:
    """A watch, its clock and its engine's account."""

    now: float = 100.0
    spent: TimeSpent = field(default_factory=TimeSpent)
    meter: RequestMeter = field(default_factory=RequestMeter)

    def watch(self, **options: Any) -> StreamWatch:
        return StreamWatch(self.meter, lambda: self.spent, RATE, clock=lambda: self.now, **options)

    def step(self, seconds: float, **stages: float) -> None:
        """The engine makes a step."""
        total = dict(self.spent.stages)
        for name, own in stages.items():
            total[f"streaming.{name}"] = total.get(f"streaming.{name}", 0.0) + own
        self.now += seconds
        self.spent = TimeSpent(self.spent.steps + 1, self.spent.seconds + seconds, total)

    @property
    def samples(self) -> dict[str, list[float]]:
        return {name: [round(value, 6) for value in values] for name, values in self.meter.snapshot().samples.items()}


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """What has been logged so far, as (level, message, fields)."""
    caplog.set_level(logging.INFO)
    return lambda: [(row.levelname, row.getMessage(), getattr(row, "oasr_fields", {})) for row in caplog.records]


def start(bench: Bench, watch: StreamWatch, samples: int = 640, **options: Any) -> ChunkRecord:
    record = ChunkRecord(received=bench.now)
    watch.opened(record, 7, REQUEST, StreamOptions(**options))
    watch.fed(record, REQUEST, samples)
    return record


def chunk(bench: Bench, watch: StreamWatch, samples: int = 640) -> ChunkRecord:
    record = ChunkRecord(received=bench.now)
    watch.fed(record, REQUEST, samples)
    return record


def answer(bench: Bench, watch: StreamWatch, record: ChunkRecord, text: str = "", is_final: bool = False) -> None:
    told = watch.answered(record, RequestOutput(REQUEST, text=text), is_final)
    bench.now += 0.001
    watch.sent(told)


def test_latencies_run_from_the_arrival_to_the_hand_over(bench: Bench) -> None:
    watch = bench.watch()
    first = start(bench, watch)
    bench.now += 0.02
    answer(bench, watch, first)
    second = chunk(bench, watch)
    bench.now += 0.03
    answer(bench, watch, second, "ONE")
    last = chunk(bench, watch)
    bench.now += 0.05
    answer(bench, watch, last, "ONE TWO", is_final=True)
    assert bench.samples == {CHUNK: [0.021, 0.031], FINAL: [0.051], FIRST_PARTIAL: [0.052]}


def test_a_chunk_without_audio_is_no_measure_of_latency(bench: Bench) -> None:
    watch = bench.watch()
    answer(bench, watch, start(bench, watch, samples=0))
    assert bench.samples == {}


def test_a_first_text_in_the_final_answer_counts_too(bench: Bench) -> None:
    watch = bench.watch()
    record = start(bench, watch)
    bench.now += 0.5
    answer(bench, watch, record, "ONE", is_final=True)
    assert bench.samples == {FINAL: [0.501], FIRST_PARTIAL: [0.501]}


def test_an_answer_to_a_stream_that_has_ended_needs_no_stream(bench: Bench) -> None:
    watch = bench.watch()
    start(bench, watch)
    watch.ended(RequestOutput(REQUEST, finished=True, finish_reason="length"))
    end = ChunkRecord(received=bench.now)
    answer(bench, watch, end, "ONE", is_final=True)
    assert bench.samples == {FINAL: [0.001]}


def test_the_log_tells_a_stream_from_its_begin_to_its_end(bench: Bench, lines: Any) -> None:
    watch = bench.watch()
    start(bench, watch, chunk_size=8, oasr_resumed=True)
    bench.now += 1.5
    chunk(bench, watch)
    watch.ended(RequestOutput(REQUEST, text="SECRET", finished=True, finish_reason="stop"))
    same = {"correlation_id": 7, "request_id": REQUEST}
    assert lines() == [
        ("INFO", "stream opened", {**same, "options": ["chunk_size", "oasr_resumed"]}),
        ("INFO", "stream closed", {**same, "duration_s": 1.5, "audio_s": 1.28, "chunks": 2, "reason": "stop"}),
    ]


@pytest.mark.parametrize(("reason", "message"), [("reaped", "stream reaped"), ("STREAM_RESTARTED", "stream abandoned")])
def test_a_stream_that_is_given_up_is_told_of(bench: Bench, lines: Any, reason: str, message: str) -> None:
    watch = bench.watch()
    start(bench, watch)
    watch.abandoned(REQUEST, reason)
    level, told, fields = lines()[-1]
    assert (level, told, fields["reason"]) == ("INFO", message, reason)


def test_a_failure_is_an_error_with_its_stage(bench: Bench, lines: Any) -> None:
    watch = bench.watch()
    start(bench, watch)
    watch.ended(
        RequestOutput(REQUEST, finished=True, finish_reason="error", error_stage="streaming_forward", error="why")
    )
    level, told, fields = lines()[-1]
    assert (level, told, fields["stage"], fields["error"]) == ("ERROR", "stream failed", "streaming_forward", "why")


def test_text_is_logged_only_when_asked_for(bench: Bench, lines: Any) -> None:
    watch = bench.watch(log_text=True)
    answer(bench, watch, start(bench, watch, trace=True), "ONE")
    watch.ended(RequestOutput(REQUEST, text="ONE TWO", finished=True, finish_reason="stop"))
    assert [fields.get("text") for _, _, fields in lines()] == [None, "ONE", "ONE TWO"]


def test_the_parts_of_a_trace_add_up_to_its_total(bench: Bench, lines: Any) -> None:
    watch = bench.watch()
    bench.step(5.0, encode=4.0)
    record = ChunkRecord(received=bench.now)
    bench.now += 0.010
    watch.opened(record, 7, REQUEST, StreamOptions(trace=True))
    watch.fed(record, REQUEST, 640)
    bench.now += 0.003
    bench.step(0.030, features=0.004, encode=0.020)
    bench.now += 0.002
    bench.step(0.020, encode=0.015, decode=0.001)
    told = watch.answered(record, RequestOutput(REQUEST, text="SECRET"), False)
    bench.now += 0.007
    watch.sent(told)
    level, message, fields = lines()[-1]
    assert (level, message) == ("INFO", "chunk answered")
    assert fields == {
        "correlation_id": 7,
        "request_id": REQUEST,
        "chunk": 1,
        "is_final": False,
        "audio_ms": 640.0,
        "received_ms": 0.0,
        "queue_ms": 10.0,
        "wait_ms": 5.0,
        "steps": 2,
        "stages_ms": {"features": 4.0, "encode": 35.0, "decode": 1.0},
        "other_ms": 10.0,
        "send_ms": 7.0,
        "total_ms": 72.0,
    }
    parts = [fields[name] for name in ("queue_ms", "wait_ms", "other_ms", "send_ms")]
    assert sum(parts) + sum(fields["stages_ms"].values()) == fields["total_ms"]


def test_streams_are_traced_by_their_share_and_nobody_is_at_none(bench: Bench, lines: Any) -> None:
    def traced(**options: Any) -> int:
        watch, before = bench.watch(**options), len(lines())
        for _ in range(2):
            answer(bench, watch, start(bench, watch))
        return sum(message == "chunk answered" for _, message, _ in lines()[before:])

    assert traced() == 0
    assert traced(trace_share=0.5, rng=Dice(0.4, 0.6)) == 1
    assert traced(trace_share=1.0) == 2


def test_a_trace_is_told_whatever_the_level(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    watch = bench.watch()
    answer(bench, watch, start(bench, watch, trace=True))
    assert [row.getMessage() for row in caplog.records] == ["chunk answered"]


def test_refusals_are_counted_by_code_and_those_of_ours_are_errors(bench: Bench, lines: Any) -> None:
    bench.meter.refused(full(3, 3, "max_sequences", 0.0), 7)
    bench.meter.refused(internal_error(), "x" * 5000)
    bench.meter.refused(internal_error(), 0)
    assert bench.meter.snapshot().counters == {
        "requests_refused:SERVER_FULL": 1,
        "requests_refused:INTERNAL_ERROR": 2,
    }
    (first, _, fields), (second, _, long), (_, _, anonymous) = lines()
    assert (first, second) == ("INFO", "ERROR")
    assert fields["correlation_id"] == 7 and fields["code"] == "SERVER_FULL" and "3 streams" in fields["reason"]
    assert len(long["correlation_id"]) == 256
    assert "correlation_id" not in anonymous


def test_what_a_client_chose_is_logged_only_when_asked_for(lines: Any) -> None:
    for log_text in (False, True):
        RequestMeter(log_text).refused(invalid_option("hotwords is 'SECRET'"), 7)
    assert [fields.get("reason", "") for _, _, fields in lines()] == ["", "INVALID_OPTION: hotwords is 'SECRET'"]
