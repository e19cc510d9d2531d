"""The life of a sequence under random orders of everything that can happen to it."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import soxr
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from oasr_backend.audio.bandwidth import NARROW_BAND
from oasr_backend.audio.resampling import Resampler
from oasr_backend.engine import ASREngine, EngineConfig, RequestOutput
from oasr_backend.triton.errors import Refusal, engine_died, invalid_input, invalid_option
from oasr_backend.triton.results import merged
from oasr_backend.triton.sequences import Chunk, SequenceState, SequenceTable, StreamOptions

CASE = Path(__file__).parents[1] / "golden" / "data" / "u2pp_conformer_ln_causal"
LIMIT = 3
IDLE = 60.0
GRACE = 1.5
# Seconds of audio that may wait: of a stream, and of all. The share of a stream is 1.5 s.
QUEUED = 4.0
TOTAL = 9.0
RATE = 16000


@dataclass
class Recorder:
    """A reply that remembers what it was used for."""

    answers: list[tuple[RequestOutput, bool]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    cancelled: bool = False

    @property
    def used(self) -> int:
        return len(self.answers) + len(self.refusals)

    @property
    def code(self) -> str:
        return self.refusals[0].code if self.refusals else ""

    def answer(self, output: RequestOutput, is_final: bool) -> None:
        self.answers.append((output, is_final))

    def refuse(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def is_cancelled(self) -> bool:
        return self.cancelled


class Faults:
    """Makes the next forward pass raise, once."""

    def __init__(self, engine: ASREngine):
        self._runner = engine._runner
        self._forward = self._runner.forward_chunks
        self._runner.forward_chunks = self._call  # type: ignore[method-assign]
        self.armed = False

    def _call(self, *arguments):  # type: ignore[no-untyped-def]
        if self.armed:
            self.armed = False
            raise RuntimeError("injected")
        return self._forward(*arguments)


CONFIG = EngineConfig(
    ckpt_dir=str(CASE),
    service_mode="streaming",
    dtype="float32",
    max_batch_size=LIMIT,
    max_blocks_per_seq=8,
    num_threads=1,
    # Freezing collects, which many small engines would pay for again and again.
    gc_freeze=False,
)


@pytest.fixture(scope="module")
def make_engine() -> Callable[[], ASREngine]:
    return lambda: ASREngine(CONFIG)


NOISE = (np.random.default_rng(7).standard_normal(400_000) * 0.1).astype(np.float32)
# The page ceiling of the engine above is 8 pages of 16 frames, 5.12 s: some sequences pass it and end early.
LENGTHS = st.sampled_from([0, 1, 160, 4000, 10240, 40000, 65000])


class SequenceLife(RuleBasedStateMachine):
    """START, chunk, END, refusals, expiry, reuse, failing steps and early ends in any order, on a real engine."""

    engine: ASREngine
    faults: Faults

    @initialize()
    def begin(self) -> None:
        self.engine = ASREngine(CONFIG)
        self.faults = Faults(self.engine)
        self.table = SequenceTable(self.engine, LIMIT, IDLE, QUEUED, TOTAL, cancelled_seconds=GRACE)
        self.replies: list[Recorder] = []
        self.now = 0.0

    @rule(
        correlation_id=st.sampled_from([1, 2, 3, 4, "five"]),
        start=st.booleans(),
        end=st.sampled_from([False, False, False, True]),
        length=LENGTHS,
        fault=st.sampled_from(["", "", "", "", "audio", "nan", "option"]),
        rate=st.sampled_from([None, None, 8000, 44100]),
        cancelled=st.sampled_from([False, False, True]),
    )
    def request(
        self,
        correlation_id: int | str,
        start: bool,
        end: bool,
        length: int,
        fault: str,
        rate: int | None,
        cancelled: bool,
    ) -> None:
        reply = Recorder(cancelled=cancelled)
        self.replies.append(reply)
        samples = NOISE[:length].copy()
        if fault == "nan":
            samples = np.full(10, np.nan, dtype=np.float32)
        self.table.arrive(
            Chunk(
                correlation_id=correlation_id,
                start=start,
                end=end,
                samples=samples,
                options=StreamOptions(sample_rate=rate),
                reply=reply,
                refusal=invalid_input("bad") if fault == "audio" else None,
                option_refusal=invalid_option("bad") if fault == "option" else None,
            ),
            self.now,
        )

    @rule()
    def step(self) -> None:
        self.table.deliver(self.engine.step(), self.now)

    @rule()
    def failing_step(self) -> None:
        self.faults.armed = True
        self.table.deliver(self.engine.step(), self.now)
        self.faults.armed = False

    @rule(seconds=st.sampled_from([1.0, 2.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.reap(self.now)

    @precondition(lambda self: hasattr(self, "table"))
    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(reply.used <= 1 for reply in self.replies)

    @precondition(lambda self: hasattr(self, "table"))
    @invariant()
    def never_more_sequences_than_allowed(self) -> None:
        assert self.table.open_sequences <= LIMIT

    @precondition(lambda self: hasattr(self, "table"))
    @invariant()
    def never_more_audio_waits_than_allowed(self) -> None:
        queued = {SequenceState.OPEN: 0.0}
        for sequence in self.table._by_request.values():
            seconds = self.table._queued(sequence)
            # An END is let through with as much again.
            assert 0 <= seconds <= (QUEUED if sequence.state is SequenceState.OPEN else 2 * QUEUED)
            queued[sequence.state] = queued.get(sequence.state, 0.0) + seconds
        assert queued[SequenceState.OPEN] <= TOTAL
        assert self.table.queued_seconds == pytest.approx(sum(queued.values()))

    def teardown(self) -> None:
        if not hasattr(self, "table"):
            return
        while self.engine.has_work:
            self.table.deliver(self.engine.step(), self.now)
        # Whatever is still open waits for audio: no request of it may be unanswered.
        assert all(reply.used == 1 for reply in self.replies)
        self.now += 2 * IDLE
        self.table.reap(self.now)
        assert self.table.open_sequences == 0
        assert self.table.tombstones == 0
        assert self.engine._runner.runtime.slots.free_slots == LIMIT
        assert self.engine._runner.runtime.attention.pool.used_blocks == 0
        assert self.engine.num_running == self.engine.num_waiting == 0
        assert all(reply.used == 1 for reply in self.replies)


TestSequenceLife = SequenceLife.TestCase
TestSequenceLife.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass
class Desk:
    """A table over a real engine, with the shortest way to send to it."""

    engine: ASREngine
    table: SequenceTable

    def send(
        self,
        correlation_id: int | str,
        samples: np.ndarray,
        start: bool = False,
        end: bool = False,
        options: StreamOptions | None = None,
    ) -> Recorder:
        reply = Recorder()
        self.table.arrive(Chunk(correlation_id, start, end, samples, options or StreamOptions(), reply), 0.0)
        return reply

    def drain(self) -> None:
        while self.engine.has_work:
            self.table.deliver(self.engine.step(), 0.0)


@pytest.fixture
def desk(make_engine: Callable[[], ASREngine]) -> Desk:
    engine = make_engine()
    return Desk(engine, SequenceTable(engine, LIMIT, IDLE, 60.0, 240.0, cancelled_seconds=GRACE))


def test_every_chunk_is_answered_with_the_text_so_far_and_end_with_the_final_one(desk: Desk) -> None:
    first = desk.send(1, NOISE[:20000], start=True)
    second = desk.send(1, NOISE[20000:30000])
    last = desk.send(1, NOISE[30000:40000], end=True)
    desk.drain()
    assert [reply.answers[0][1] for reply in (first, second, last)] == [False, False, True]
    assert last.answers[0][0].text == desk.engine.transcribe(NOISE[:40000])


def test_an_empty_chunk_is_answered_at_once(desk: Desk) -> None:
    desk.send(1, NOISE[:0], start=True)
    assert desk.send(1, NOISE[:0]).answers


def test_a_start_follows_while_the_end_before_it_is_awaited(desk: Desk) -> None:
    desk.send(1, NOISE[:20000], start=True)
    end = desk.send(1, NOISE[:0], end=True)
    again = desk.send(1, NOISE[:15000], start=True, end=True)
    desk.drain()
    assert end.answers[0][0].text == desk.engine.transcribe(NOISE[:20000])
    assert again.answers[0][0].text == desk.engine.transcribe(NOISE[:15000])


def test_a_second_start_begins_anew_and_answers_who_waited(desk: Desk) -> None:
    waiting = desk.send(1, NOISE[:40000], start=True)
    desk.send(1, NOISE[:20000], start=True)
    final = desk.send(1, NOISE[:0], end=True)
    desk.drain()
    assert waiting.code == "STREAM_RESTARTED"
    assert final.answers[0][0].text == desk.engine.transcribe(NOISE[:20000])


def test_a_refused_chunk_consumes_nothing(desk: Desk) -> None:
    desk.send(1, NOISE[:20000], start=True)
    assert desk.send(1, np.full(100, np.inf, dtype=np.float32)).code == "INVALID_INPUT"
    final = desk.send(1, NOISE[20000:30000], end=True)
    desk.drain()
    assert final.answers[0][0].text == desk.engine.transcribe(NOISE[:30000])


def test_one_stream_more_than_allowed_is_refused_at_once(desk: Desk) -> None:
    for correlation_id in range(1, LIMIT + 1):
        desk.send(correlation_id, NOISE[:0], start=True)
    reply = desk.send(99, NOISE[:0], start=True)
    assert reply.code == "SERVER_FULL"
    assert f"{LIMIT} of {LIMIT} streams are open (max_sequences) with 0.0 s of audio queued" in str(reply.refusals[0])
    assert desk.send(99, NOISE[:10]).code == "UNKNOWN_SEQUENCE"


def test_a_stream_that_ended_early_says_so_until_its_end_which_returns_the_text(desk: Desk) -> None:
    # The page ceiling of 8 pages is 5.12 s.
    desk.send(1, NOISE[:160_000], start=True)
    desk.drain()
    assert desk.send(1, NOISE[:100]).code == "STREAM_ENDED"
    final = desk.send(1, NOISE[:0], end=True)
    output, is_final = final.answers[0]
    assert is_final
    assert output.finish_reason == "length"
    assert desk.send(1, NOISE[:0], end=True).code == "UNKNOWN_SEQUENCE"


def test_an_end_with_refused_audio_frees_the_stream(desk: Desk) -> None:
    waiting = desk.send(1, NOISE[:20000], start=True)
    assert desk.send(1, np.full(100, np.nan, dtype=np.float32), end=True).code == "INVALID_INPUT"
    # Whoever waits hears the true reason.
    assert waiting.code == "INVALID_INPUT"
    assert desk.table.open_sequences == 0
    assert desk.engine._runner.runtime.slots.free_slots == LIMIT


def test_a_stream_whose_last_request_was_cancelled_is_freed_when_none_follows(desk: Desk) -> None:
    desk.send(1, NOISE[:20000], start=True)
    desk.send(2, NOISE[:20000], start=True)
    waiting = desk.send(1, NOISE[20000:40000])
    waiting.cancelled = True
    desk.table.reap(10.0)
    desk.table.reap(10.0 + GRACE - 0.1)
    assert desk.table.open_sequences == 2
    desk.table.reap(10.0 + GRACE)
    # Its first chunk was not cancelled, and waits for its answer.
    assert desk.table.open_sequences == 2
    desk.drain()
    desk.table.reap(20.0)
    desk.table.reap(20.0 + GRACE)
    assert desk.table.open_sequences == 1
    assert desk.table.counts.cancelled == 1
    assert desk.table.counts.reaped == 0
    assert desk.engine._runner.runtime.slots.free_slots == LIMIT - 1
    assert desk.send(1, NOISE[:100]).code == "UNKNOWN_SEQUENCE"
    final = desk.send(2, NOISE[20000:30000], end=True)
    desk.drain()
    assert final.answers[0][0].text == desk.engine.transcribe(NOISE[:30000])


def test_a_stream_that_goes_on_behind_a_cancelled_request_keeps_its_audio(desk: Desk) -> None:
    desk.send(1, NOISE[:20000], start=True).cancelled = True
    desk.table.reap(10.0)
    desk.send(1, NOISE[20000:30000])
    desk.table.reap(10.0 + GRACE)
    desk.table.reap(10.0 + 9 * GRACE)
    final = desk.send(1, NOISE[30000:40000], end=True)
    desk.drain()
    assert final.answers[0][0].text == desk.engine.transcribe(NOISE[:40000])


def test_a_cancelled_end_is_not_worked_off_and_leaves_the_id_to_its_next_stream(desk: Desk) -> None:
    left = [desk.send(1, NOISE[:20000], start=True), desk.send(1, NOISE[:0], end=True)]
    for reply in left:
        reply.cancelled = True
    again = desk.send(1, NOISE[:15000], start=True)
    desk.table.reap(10.0)
    desk.table.reap(10.0 + GRACE)
    assert [reply.code for reply in left] == ["UNKNOWN_SEQUENCE"] * 2
    assert desk.table.open_sequences == 1
    final = desk.send(1, NOISE[:0], end=True)
    desk.drain()
    assert again.answers
    assert final.answers[0][0].text == desk.engine.transcribe(NOISE[:15000])


def test_closing_answers_everybody(desk: Desk) -> None:
    replies = [
        desk.send(1, NOISE[:40000], start=True),
        desk.send(1, NOISE[:40000], end=True),
        desk.send(2, NOISE[:40000], start=True),
    ]
    desk.table.close(engine_died())
    assert [reply.code for reply in replies] == ["ENGINE_DIED"] * 3


TELEPHONE = StreamOptions(sample_rate=8000)


@pytest.mark.parametrize("size", [37, 160, 5120, 9999])
def test_a_resampled_stream_hears_what_the_whole_gives(desk: Desk, size: int) -> None:
    wave = NOISE[:20000]
    answered = 0
    for begin in range(0, len(wave), size):
        reply = desk.send(1, wave[begin : begin + size], start=begin == 0, options=TELEPHONE)
        desk.drain()
        answered += len(reply.answers)
        if reply.answers:
            heard = min(begin + size, len(wave)) / 8000
            assert reply.answers[0][0].audio_seconds == pytest.approx(heard)
    final = desk.send(1, NOISE[:0], end=True)
    desk.drain()
    assert answered
    output = final.answers[0][0]
    assert output.text == desk.engine.transcribe(soxr.resample(wave, 8000, 16000))
    assert output.audio_seconds == 2.5


def test_a_chunk_that_the_resampler_holds_back_whole_is_answered_at_once(desk: Desk) -> None:
    first = desk.send(1, NOISE[:10], start=True, options=TELEPHONE)
    assert first.answers[0][0].audio_seconds == pytest.approx(10 / 8000)


def test_the_resampler_goes_with_its_stream(desk: Desk) -> None:
    """Ended, ended early, begun anew, reaped, closed."""
    held: list[weakref.ref[Resampler]] = []

    def open_stream(correlation_id: int) -> None:
        desk.send(correlation_id, NOISE[:2000], start=True, options=TELEPHONE)
        held.append(weakref.ref(desk.table._by_id[correlation_id].audio._resampler))  # type: ignore[arg-type]

    open_stream(1)
    desk.send(1, NOISE[:0], end=True)
    open_stream(2)
    # The page ceiling of 8 pages is 5.12 s.
    desk.send(2, NOISE[:80000])
    desk.drain()
    assert desk.table.tombstones == 1
    open_stream(3)
    desk.send(3, NOISE[:0], start=True)
    open_stream(4)
    desk.table.reap(2 * IDLE)
    open_stream(5)
    desk.table.close(engine_died())
    gc.collect()
    assert [reference() for reference in held] == [None] * 5


def test_what_is_said_of_the_audio_is_said_once_and_beside_the_engines(desk: Desk) -> None:
    hum = (0.2 * np.sin(np.arange(80000) * 0.3)).astype(np.float32)
    first = desk.send(1, hum[:40000], start=True)
    desk.drain()
    final = desk.send(1, hum[:10000], end=True)
    desk.drain()
    for reply in (first, final):
        assert reply.answers[0][0].warnings == (NARROW_BAND,)
    assert merged(("a", NARROW_BAND), (NARROW_BAND, "b")) == ("a", NARROW_BAND, "b")


def test_a_stream_that_ended_early_is_answered_with_what_is_said_of_its_audio(desk: Desk) -> None:
    hum = (0.2 * np.sin(np.arange(160_000) * 0.3)).astype(np.float32)
    desk.send(1, hum, start=True)
    desk.drain()
    final = desk.send(1, NOISE[:0], end=True)
    assert final.answers[0][0].warnings == (NARROW_BAND,)


# audio that waits


def fill(table: SequenceTable, correlation_id: int, seconds: float, start: bool = False, end: bool = False) -> Recorder:
    reply = Recorder()
    samples = NOISE[: int(seconds * RATE)]
    table.arrive(Chunk(correlation_id, start, end, samples, StreamOptions(), reply), 0.0)
    return reply


@pytest.fixture
def table(make_engine: Callable[[], ASREngine]) -> SequenceTable:
    return SequenceTable(make_engine(), LIMIT, IDLE, QUEUED, TOTAL)


def test_a_chunk_too_far_ahead_is_refused_and_can_be_sent_again(desk: Desk) -> None:
    table = SequenceTable(desk.engine, LIMIT, IDLE, QUEUED, TOTAL)
    waiting = [fill(table, 1, 2.0, start=True), fill(table, 1, 1.5)]
    held = fill(table, 1, 1.0)
    assert held.code == "BACK_PRESSURE"
    assert held.refusals[0].status == "UNAVAILABLE"
    message = str(held.refusals[0])
    assert "3.5 s of the stream's audio are queued and max_queued_seconds is 4; wait for answers until 2.0 s" in message
    while desk.engine.has_work:
        table.deliver(desk.engine.step(), 0.0)
    assert all(reply.answers for reply in waiting)
    assert not fill(table, 1, 1.0).refusals
    final = fill(table, 1, 0.0, end=True)
    while desk.engine.has_work:
        table.deliver(desk.engine.step(), 0.0)
    assert final.answers[0][0].audio_seconds == pytest.approx(4.5)
    assert table.counts.held_back == table.counts.refused == 1


def test_behind_a_chunk_that_was_refused_none_slips_in_before_half_is_decoded(desk: Desk) -> None:
    """A client that sends without waiting would lose the order of its audio."""
    table = SequenceTable(desk.engine, LIMIT, IDLE, QUEUED, TOTAL)
    fill(table, 1, 3.5, start=True)
    assert fill(table, 1, 1.0).code == "BACK_PRESSURE"
    assert fill(table, 1, 0.1).code == "BACK_PRESSURE"
    assert not fill(table, 1, 0.0).refusals
    table.deliver(desk.engine.step(), 0.0)
    assert 2.0 < table.queued_seconds < 3.0
    assert fill(table, 1, 0.1).code == "BACK_PRESSURE"
    table.deliver(desk.engine.step(), 0.0)
    table.deliver(desk.engine.step(), 0.0)
    assert table.queued_seconds < 2.0
    assert not fill(table, 1, 0.1).refusals


def test_a_chunk_longer_than_may_ever_wait_is_no_matter_of_waiting(table: SequenceTable) -> None:
    reply = fill(table, 1, 4.5, start=True)
    assert reply.code == "INVALID_INPUT"
    assert "the chunk lasts 4.5 s and max_queued_seconds is 4; send shorter chunks" in str(reply.refusals[0])
    assert not fill(table, 1, 1.0).refusals


def test_an_end_is_taken_whatever_waits(desk: Desk) -> None:
    table = SequenceTable(desk.engine, LIMIT, IDLE, QUEUED, TOTAL)
    fill(table, 1, 4.0, start=True)
    assert fill(table, 1, 4.0).code == "BACK_PRESSURE"
    final = fill(table, 1, 4.0, end=True)
    while desk.engine.has_work:
        table.deliver(desk.engine.step(), 0.0)
    # The page ceiling ends it, not the refusal.
    assert final.answers[0][0].audio_seconds == pytest.approx(8.0)


def test_streams_far_ahead_fill_half_of_the_total_and_no_more(table: SequenceTable) -> None:
    assert not fill(table, 1, 4.0, start=True).refusals
    assert not fill(table, 2, 3.0, start=True).refusals
    held = fill(table, 2, 0.6)
    assert held.code == "BACK_PRESSURE"
    assert "7.0 s of audio are queued, 3.0 s of this stream, and max_total_queued_seconds is 9" in str(held.refusals[0])
    # One that is not ahead finds its share free.
    assert not fill(table, 3, 0.6, start=True).refusals
    assert not fill(table, 3, 0.9).refusals
    assert fill(table, 3, 0.6).code == "BACK_PRESSURE"


def test_a_whole_clip_in_one_request_may_be_refused_and_leaves_nothing(table: SequenceTable) -> None:
    fill(table, 1, 4.0, start=True)
    fill(table, 2, 3.0, start=True)
    assert fill(table, 3, 2.5, start=True, end=True).code == "BACK_PRESSURE"
    assert table.open_sequences == 2
    assert fill(table, 3, 0.1).code == "UNKNOWN_SEQUENCE"


def test_the_engines_places_limit_the_streams_where_they_are_fewer(make_engine: Callable[[], ASREngine]) -> None:
    table = SequenceTable(make_engine(), LIMIT + 5, IDLE, QUEUED, TOTAL)
    for correlation_id in range(LIMIT):
        fill(table, correlation_id + 1, 1.0, start=True)
    reply = fill(table, 99, 1.0, start=True)
    assert f"{LIMIT} of {LIMIT} streams are open (the page pool) with 3.0 s of audio queued" in str(reply.refusals[0])


def test_a_flood_of_starts_and_ids_keeps_nothing(table: SequenceTable) -> None:
    for correlation_id in range(1, LIMIT + 1):
        fill(table, correlation_id, 1.0, start=True)
    for number in range(5000):
        assert fill(table, 1000 + number, 0.1, start=True, end=number % 2 == 0).code == "SERVER_FULL"
    assert table.open_sequences == len(table._by_id) == LIMIT
    assert table.queued_seconds == pytest.approx(LIMIT)


def test_starts_again_and_again_under_one_id_keep_the_last(table: SequenceTable) -> None:
    replies = [fill(table, 1, 1.0, start=True) for _ in range(200)]
    assert {reply.code for reply in replies[:-1]} == {"STREAM_RESTARTED"}
    assert table.open_sequences == 1
    assert table.queued_seconds == pytest.approx(1.0)
