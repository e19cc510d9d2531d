"""Offline requests: what may wait, in which order it goes, and how each is answered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from oasr_backend.engine import Admission, RequestOutput, RequestSpec
from oasr_backend.errors import OptionError
from oasr_backend.triton.clips import ClipBatch, ClipTable
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.request_options import ClipOptions

RATE = 16000


@dataclass
class Engine:
    """Takes everything in and does nothing with it."""

    sample_rate: int = RATE
    waiting: dict[str, RequestSpec] = field(default_factory=dict)
    bad: Exception | None = None

    def add_requests_batch(self, specs: Sequence[RequestSpec | Mapping[str, Any]]) -> list[Admission]:
        admissions = []
        for spec in specs:
            assert isinstance(spec, RequestSpec)
            if self.bad is not None:
                admissions.append(Admission(None, self.bad))
                continue
            request_id = str(len(self.waiting))
            self.waiting[request_id] = spec
            admissions.append(Admission(request_id))
        return admissions

    def abort_request(self, request_id: str) -> bool:
        return self.waiting.pop(request_id, None) is not None


@dataclass
class Reply:
    outputs: list[RequestOutput] = field(default_factory=list)
    refusal: Refusal | None = None
    asked: int = 0
    is_cancelled: bool = False
    dropped: bool = False

    def answer(self, outputs: list[RequestOutput]) -> None:
        self.outputs = outputs

    def refuse(self, refusal: Refusal) -> None:
        self.refusal = refusal

    def drop(self) -> None:
        self.dropped = True

    def ask_if_cancelled(self) -> None:
        self.asked += 1

    @property
    def message(self) -> str:
        return str(self.refusal)


def send(table: ClipTable, *seconds: float, **options: Any) -> Reply:
    reply = Reply()
    clips = tuple(np.zeros(int(one * RATE), dtype=np.int16) for one in seconds)
    table.arrive(ClipBatch(clips, ClipOptions(**options), reply), 0.0)
    return reply


def finish(table: ClipTable, *request_ids: str) -> None:
    table.deliver([RequestOutput(request_id, finished=True, finish_reason="stop") for request_id in request_ids], 0.0)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def table(engine: Engine) -> ClipTable:
    return ClipTable(engine, max_queued=4, max_queued_seconds=100.0)


def test_clips_beyond_the_limit_are_refused_with_the_numbers(table: ClipTable) -> None:
    send(table, 1, 1, 1)
    reply = send(table, 1, 1)
    assert reply.refusal is not None and reply.refusal.status == "UNAVAILABLE"
    assert reply.message == (
        "SERVER_FULL: 3 of 4 clips are queued (max_queued_clips); try again later or use another server"
    )
    assert table.queued == 3


def test_audio_beyond_the_limit_is_refused_with_the_numbers(table: ClipTable) -> None:
    first = send(table, 60, 20)
    reply = send(table, 30)
    assert reply.refusal is not None and reply.refusal.status == "UNAVAILABLE"
    assert reply.message == (
        "SERVER_FULL: 80.0 s of audio are queued and 30.0 s more pass the limit of 100 s (max_queued_clip_seconds); "
        "try again later or use another server"
    )
    finish(table, "0")
    assert table.queued_seconds == 20
    assert send(table, 30).refusal is None
    assert not first.outputs
    finish(table, "1")
    assert len(first.outputs) == 2
    assert table.queued_seconds == 30


def test_a_request_that_could_never_be_queued_is_no_matter_of_waiting(table: ClipTable) -> None:
    reply = send(table, 60, 60)
    assert reply.refusal is not None and reply.refusal.status == "INVALID_ARG"
    assert reply.message == (
        "INVALID_INPUT: the request holds 120.0 s of audio and max_queued_clip_seconds is 100; "
        "send fewer or shorter clips"
    )
    reply = send(table, 1, 1, 1, 1, 1)
    assert reply.message == "INVALID_INPUT: the request holds 5 clips and max_queued_clips is 4; send fewer"
    assert table.queued == 0


def test_a_refused_request_leaves_nothing_in_the_queue(table: ClipTable, engine: Engine) -> None:
    engine.bad = OptionError("n_best is 3")
    assert send(table, 1).message == "INVALID_OPTION: n_best is 3"
    engine.bad = ValueError("audio holds NaN")
    assert send(table, 1, 1).message == "INVALID_INPUT: clip 0: audio holds NaN"
    assert table.queued == table.queued_seconds == 0


def test_the_priority_reaches_the_engine(table: ClipTable, engine: Engine) -> None:
    send(table, 1)
    send(table, 1, queue_priority=-5)
    assert [spec.priority for spec in engine.waiting.values()] == [0, -5]


def test_a_cancelled_request_is_given_up_with_all_its_clips(table: ClipTable, engine: Engine) -> None:
    first, left, last = send(table, 1), send(table, 2, 3), send(table, 4)
    finish(table, "1")
    left.is_cancelled = True
    table.reap(0.0)
    assert left.dropped and not first.dropped and not last.dropped
    assert (table.cancelled, table.queued, table.queued_seconds) == (1, 2, 5)
    # The clip that is done already is no business of the engine's.
    assert sorted(engine.waiting) == ["0", "1", "3"]
    finish(table, "0", "2", "3")
    assert first.outputs and last.outputs and not left.outputs
    assert table.finished == 2


def test_so_many_requests_are_asked_about_in_a_second(engine: Engine) -> None:
    table = ClipTable(engine, max_queued=1000, max_queued_seconds=1e6)
    replies = [send(table, 0.1) for _ in range(500)]
    counts = []
    # A long step is followed by more questions, not by the same number.
    for now in (10.0, 10.5, 12.5, 12.5, 60.0):
        before = sum(reply.asked for reply in replies)
        table.reap(now)
        counts.append(sum(reply.asked for reply in replies) - before)
    assert counts == [0, 64, 256, 0, 500]


def test_a_long_queue_is_gone_through_as_fast_as_it_may(engine: Engine) -> None:
    """However it shrinks and grows, none of those that wait is passed over."""
    table = ClipTable(engine, max_queued=1000, max_queued_seconds=1e6)
    replies = [send(table, 0.1) for _ in range(300)]
    table.reap(0.0)
    for number in range(6):
        finish(table, *(str(index) for index in range(7 * number, 7 * number + 7)))
        replies += [send(table, 0.1) for _ in range(number)]
        table.reap(0.5 * (number + 1))
    waiting = [reply for reply in replies if not reply.outputs]
    assert len(waiting) > 250
    assert all(reply.asked in (1, 2) for reply in waiting[:-15])
