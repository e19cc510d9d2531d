"""Streams whose segments end at pauses."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.decode.base import STRATEGIES, DecodeSetup, Rescorer, StrategyKind
from oasr_backend.decode.endpoint import EndpointReason, EndpointRule, SpeechEvent
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine import output_processor as outputs_module
from oasr_backend.engine.transcript import Segment, join_texts
from oasr_backend.errors import ConfigError
from oasr_backend.features.onset import Onset
from tests.engine.engines import (
    RecordingStrategy,
    assert_consistent,
    assert_idle,
    assert_same,
    cut,
    demo_engine,
    drain,
    every,
    finals,
    make_engine,
    speech,
)
from tests.engine.test_demo import TEXTS, clip

RATE = 16000
FRAME_S = 0.04
PAUSE = np.zeros(RATE * 3 // 2, dtype=np.float32)
HISTORIES = ("keep", "reset")
METHODS: list[dict[str, Any]] = [{}, {"decode_method": "ctc_prefix_beam"}, {"two_pass": True}]
ENDPOINTS = {"endpointing": True, "word_timestamps": True}


def said(*names: str) -> tuple[np.ndarray, list[float]]:
    """Clips with a pause behind each, and the second at which each starts."""
    parts, starts, samples = [], [], 0
    for name in names:
        starts.append(samples / RATE)
        parts += [clip(name), PAUSE]
        samples += len(clip(name)) + len(PAUSE)
    return np.concatenate(parts), starts


@cache
def alone(name: str) -> RequestOutput:
    """A clip as a stream of its own."""
    (output,) = demo_engine().transcribe_outputs([clip(name)], decoding={"word_timestamps": True})
    return output


def listen(engine: ASREngine, pieces: Sequence[np.ndarray], **decoding: Any) -> list[RequestOutput]:
    """All outputs of a stream that is fed piece by piece, a step after each; nothing else may run."""
    request_id = engine.add_streaming_request(decoding=decoding)
    outputs: list[RequestOutput] = []
    for piece in pieces:
        engine.feed_chunk(request_id, piece)
        outputs += engine.step()
    engine.feed_chunk(request_id, [], is_last=True)
    outputs += drain(engine)
    assert all(output.request_id == request_id for output in outputs)
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    return outputs


@cache
def heard(history: str) -> tuple[RequestOutput, ...]:
    """All clips, live."""
    samples, _ = said(*TEXTS)
    return tuple(listen(demo_engine(), every(samples, 1600), endpoint_history=history, vad_events=True, **ENDPOINTS))


# segments


@pytest.mark.parametrize("history", HISTORIES)
def test_every_clip_is_a_segment_with_its_text_and_its_times(history: str) -> None:
    _, starts = said(*TEXTS)
    final = heard(history)[-1]
    assert [segment.text for segment in final.segments] == [alone(name).text for name in TEXTS]
    for name, start, segment in zip(TEXTS, starts, final.segments, strict=True):
        assert segment.is_final and segment.endpoint == "silence" and segment.alternatives is None
        own, expected = segment.words, alone(name).words
        assert own is not None and expected is not None
        assert [word.word for word in own] == [word.word for word in expected]
        for word, other in zip(own, expected, strict=True):
            assert word.start == pytest.approx(start + other.start, abs=0.15)
            assert word.end == pytest.approx(start + other.end, abs=0.15)
        assert (segment.start, segment.end) == (own[0].start, own[-1].end)
        assert 0.5 < segment.confidence <= 1
    assert_idle(demo_engine())


@pytest.mark.parametrize("history", HISTORIES)
def test_the_final_output_is_all_segments_together(history: str) -> None:
    final = heard(history)[-1]
    segments = final.segments
    assert final.text == " ".join(segment.text for segment in segments)
    assert final.words == tuple(word for segment in segments for word in segment.words or ())
    assert (final.start, final.end) == (segments[0].start, segments[-1].end)
    assert final.finish_reason == "stop"
    assert len(final.timestamps) == len(final.tokens[0])
    assert all(before < after for before, after in pairwise(final.timestamps))
    assert all(before.end <= after.start for before, after in pairwise(final.words))
    assert final.end is not None and final.end <= final.audio_seconds


@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_final_never_changes(history: str) -> None:
    settled: tuple[Segment, ...] = ()
    for output in heard(history):
        now = tuple(segment for segment in output.segments if segment.is_final)
        live = output.segments[len(now) :]
        assert now[: len(settled)] == settled
        assert len(live) <= (0 if output.finished else 1)
        assert output.text == join_texts([segment.text for segment in output.segments])
        assert all(segment.endpoint is None for segment in live)
        settled = now
    assert len(settled) == len(TEXTS)


@pytest.mark.parametrize("history", HISTORIES)
def test_an_endpoint_is_told_once_with_the_output_that_follows_it(history: str) -> None:
    told = []
    known = 0
    for output in heard(history):
        final = [segment for segment in output.segments if segment.is_final]
        if output.endpoint is not None:
            told.append(output.endpoint)
        # By then its segment is final.
        assert (output.endpoint is not None) == (len(final) > known) or output.finished
        known = len(final)
    assert [endpoint.reason for endpoint in told] == ["silence"] * len(TEXTS)
    for endpoint, segment in zip(told, heard(history)[-1].segments, strict=True):
        # One second behind the last speech, and that is near the end of the last word.
        assert segment.end + 0.75 <= endpoint.frame * FRAME_S <= segment.end + 1.8


@pytest.mark.parametrize("history", HISTORIES)
def test_speech_events_alternate_and_enclose_every_segment(history: str) -> None:
    events = [event for output in heard(history) for event in output.speech_events or ()]
    assert all(output.speech_events is not None for output in heard(history))
    assert [event.kind for event in events] == ["speech_start", "speech_end"] * len(TEXTS)
    times = [event.seconds for event in events]
    assert times == sorted(times)
    segments = heard(history)[-1].segments
    for start, end, segment in zip(times[::2], times[1::2], segments, strict=True):
        assert segment.start - 0.1 <= start <= segment.start + 0.3
        assert segment.end - 0.3 <= end <= segment.end + 0.3


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("size", [None, 1001, 30000])
def test_however_a_stream_comes_it_ends_the_same(history: str, size: int | None) -> None:
    """Attached to its request, in small pieces, and faster than it is stepped."""
    engine = demo_engine()
    samples, _ = said(*TEXTS)
    decoding = {**ENDPOINTS, "endpoint_history": history}
    if size is None:
        (final,) = engine.transcribe_outputs([samples], decoding=decoding)
    else:
        final = listen(engine, every(samples, size), **decoding)[-1]
    assert_same(final, heard(history)[-1])
    assert untimed(final.segments) == untimed(heard(history)[-1].segments)
    assert_idle(engine)


def untimed(segments: Sequence[Segment]) -> list[tuple]:
    """What must be equal to the letter of segments."""
    return [(one.text, one.start, one.end, one.is_final, one.endpoint) for one in segments]


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("rest", [0.9, 1.0, 1.3, 1.7, 6.5])
def test_a_stream_may_end_anywhere_in_the_silence_behind_a_segment(history: str, rest: float) -> None:
    """Before the endpoint, on it, and behind it, when the encoder has begun anew and waits for speech."""
    engine = demo_engine()
    name = "command.flac"
    spoken = alone(name).end
    assert spoken is not None
    samples = np.concatenate([clip(name)[: int(spoken * RATE)], np.zeros(int(rest * RATE), dtype=np.float32)])
    (final,) = engine.transcribe_outputs([samples], decoding={**ENDPOINTS, "endpoint_history": history})
    assert final.text == TEXTS[name]
    assert len(final.segments) == 1 and final.finish_reason == "stop"
    assert_idle(engine)


@pytest.mark.parametrize("seed", range(3))
def test_pauses_of_any_length_lose_no_word(seed: int) -> None:
    """Endpoints lie anywhere in a chunk, and so does the speech behind them."""
    engine, rng = demo_engine(), random.Random(seed)
    names = rng.sample(list(TEXTS), 2)
    parts = [part for name in names for part in (clip(name), np.zeros(rng.randint(RATE, 7 * RATE), np.float32))]
    (final,) = engine.transcribe_outputs([np.concatenate(parts)], decoding=ENDPOINTS)
    assert [segment.text for segment in final.segments] == [TEXTS[name] for name in names]
    start = (len(parts[0]) + len(parts[1])) / RATE
    expected = alone(names[1]).start
    assert expected is not None
    assert final.segments[1].start == pytest.approx(start + expected, abs=0.15)
    assert_idle(engine)


@pytest.mark.parametrize("history", HISTORIES)
def test_a_noise_in_a_pause_swallows_nothing_behind_it(history: str) -> None:
    """Whatever was loud while the encoder waited for speech, speech that is less loud is speech."""
    engine = demo_engine()
    noise = (np.random.default_rng(0).standard_normal(3 * RATE) * 0.05).astype(np.float32)
    parts = [clip("digits.flac")[: 2 * RATE], noise, PAUSE, clip("command.flac"), PAUSE]
    decoding = {"endpointing": True, "endpoint_history": history}
    (final,) = engine.transcribe_outputs([np.concatenate(parts)], decoding=decoding)
    assert [segment.text for segment in final.segments][-1] == TEXTS["command.flac"]


@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_said_softly_behind_a_pause_is_heard(history: str) -> None:
    """A second voice, twenty decibels below the first, in the same room."""
    engine = demo_engine()
    parts = [clip("digits.flac"), PAUSE, clip("command.flac") * np.float32(0.1), PAUSE]
    samples = np.concatenate(parts)
    samples += (np.random.default_rng(0).standard_normal(len(samples)) * 5e-4).astype(np.float32)
    decoding = {"endpointing": True, "endpoint_history": history}
    (final,) = engine.transcribe_outputs([samples], decoding=decoding)
    assert [segment.text for segment in final.segments] == [TEXTS["digits.flac"], TEXTS["command.flac"]]


# endpoints at any frame


@dataclass
class Chosen:
    """Ends a segment behind each of the chosen frames of the stream, whatever was heard."""

    rule: EndpointRule
    seconds_per_frame: float
    behind: frozenset[int] = frozenset()
    frames: int = 0
    heard: list[float] = field(default_factory=list)

    def feed(self, blank_probability: float) -> EndpointReason | None:
        self.frames += 1
        self.heard.append(blank_probability)
        return "silence" if self.frames in self.behind else None

    def take_events(self) -> list[SpeechEvent]:
        return []


def end_behind(monkeypatch: pytest.MonkeyPatch, frames: Sequence[int]) -> list[Chosen]:
    """From now on streams end their segments behind `frames`; the endpointers that are made."""
    made: list[Chosen] = []

    def make(rule: EndpointRule, seconds_per_frame: float) -> Chosen:
        made.append(Chosen(rule, seconds_per_frame, frozenset(frames)))
        return made[-1]

    monkeypatch.setattr(outputs_module, "Endpointer", make)
    return made


SHORT = speech(26000, 1)
KEEP = {"endpointing": True, "endpoint_history": "keep"}


@dataclass(frozen=True)
class Recorded:
    """An engine that keeps every log-probability, and a whole stream without endpoints through it."""

    engine: ASREngine
    strategy: RecordingStrategy
    whole: np.ndarray

    def run(self, pieces: Sequence[np.ndarray], **decoding: Any) -> tuple[RequestOutput, list[np.ndarray]]:
        """The final output and the log-probabilities of each segment."""
        self.strategy.sessions.clear()
        final = listen(self.engine, pieces, **decoding)[-1]
        assert_idle(self.engine)
        assert all(session.closed == 1 for session in self.strategy.sessions)
        empty = np.zeros((0, self.whole.shape[1]), dtype=np.float32)
        return final, [np.concatenate([empty, *session.chunks]) for session in self.strategy.sessions]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with pytest.MonkeyPatch.context() as patch:
        strategy = RecordingStrategy(DecodeSetup(0, 0))
        patch.setitem(STRATEGIES, "recording", StrategyKind(lambda setup: strategy))
        engine = make_engine(decode_method="recording")
        listen(engine, [SHORT])
        yield Recorded(engine, strategy, strategy.sessions[0].matrix)


def assert_every_frame_is_once_in_a_segment(recorded: Recorded, parts: list[np.ndarray], ends: Sequence[int]) -> None:
    total = len(recorded.whole)
    bounds = [0, *sorted(end for end in set(ends) if end <= total), total]
    assert [len(part) for part in parts] == [after - before for before, after in pairwise(bounds)]
    np.testing.assert_allclose(np.concatenate(parts), recorded.whole, atol=2e-4)


def test_an_endpoint_at_any_frame_loses_and_repeats_nothing(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every chunk, in the last one, at its end, and behind it, where no frame ever comes."""
    total = len(recorded.whole)
    assert total > 2 * recorded.engine.config.chunk_size
    for end in range(1, total + 2):
        (made,) = [end_behind(monkeypatch, [end])]
        final, parts = recorded.run([SHORT], **KEEP)
        assert_every_frame_is_once_in_a_segment(recorded, parts, [end])
        assert [segment.endpoint for segment in final.segments if segment.endpoint] == ["silence"] * (end <= total)
        # Each frame is asked about once.
        (endpointer,) = made
        np.testing.assert_allclose(endpointer.heard, np.exp(recorded.whole[:, 0]), atol=1e-6)


@settings(max_examples=30)
@given(st.sets(st.integers(1, 40)), st.lists(st.integers(1, 9000), max_size=8))
def test_endpoints_at_any_frames_lose_and_repeat_nothing(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, ends: set[int], sizes: list[int]
) -> None:
    """Several in one chunk, one behind every frame, with audio in any pieces."""
    end_behind(monkeypatch, sorted(ends))
    final, parts = recorded.run(cut(SHORT, sizes), **KEEP)
    assert_every_frame_is_once_in_a_segment(recorded, parts, sorted(ends))
    tokens = [token for session in recorded.strategy.sessions for token in recorded.strategy.best(session).tokens]
    assert final.tokens == (tuple(tokens),)
    # Times go on over segments.
    assert all(before < after for before, after in pairwise(final.timestamps))
    assert final.text == join_texts([segment.text for segment in final.segments])


def test_a_segment_cut_off_in_speech_ends_with_its_last_frame(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that neither segments nor words overlap."""
    ends = range(3, len(recorded.whole), 4)
    end_behind(monkeypatch, ends)
    final, _ = recorded.run([SHORT], word_timestamps=True, **KEEP)
    assert len(final.segments) > 5 and final.words is not None
    for segment in final.segments[:-1]:
        end = next(end for end in ends if segment.start < end * FRAME_S - 1e-9)
        assert segment.end <= end * FRAME_S + 1e-9
    assert all(before.end <= after.start + 1e-9 for before, after in pairwise(final.segments))
    assert all(before.end <= after.start + 1e-9 for before, after in pairwise(final.words))


def test_a_segment_behind_every_frame_and_none_of_audio(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    end_behind(monkeypatch, range(1, 100))
    _, parts = recorded.run([SHORT], **KEEP)
    assert [len(part) for part in parts] == [1] * len(recorded.whole) + [0]
    final, parts = recorded.run([], **KEEP)
    assert (final.text, final.segments, final.tokens) == ("", (), ((),))
    assert [len(part) for part in parts] == [0]


def test_peaks_keep_their_frames_over_segments(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that ends where a blank is cuts no run of a token in two."""
    plain, _ = recorded.run([SHORT])
    best = recorded.whole.argmax(1)
    ends = [frame + 1 for frame in range(len(best)) if best[frame] == 0]
    assert len(ends) > 5
    end_behind(monkeypatch, ends)
    final, _ = recorded.run([SHORT], word_timestamps=True, **KEEP)
    assert final.tokens == plain.tokens
    assert final.timestamps == plain.timestamps
    assert final.scores == pytest.approx(plain.scores)
    assert final.confidence == pytest.approx(plain.confidence)


@dataclass
class Silent(Chosen):
    """To which all of the stream is silence."""

    silence: int = 1000
    heard_speech: bool = False

    def rewind(self, frames: int) -> None:
        self.frames -= frames


@dataclass
class Foreseen:
    """Speech sets on at one frame of the stream."""

    frame: int
    frames: int = 0
    told: bool = False

    def feed(self, levels: Sequence[float]) -> list[Onset]:
        place = self.frame - self.frames
        self.frames += len(levels)
        if self.told or place >= len(levels):
            return []
        self.told = True
        return [Onset(place, False)]

    def rewind(self, frames: int) -> None:
        self.frames -= frames


def test_the_encoder_begins_anew_at_any_frame_and_hears_all(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0.2 s before an onset on, what is decoded is what a stream from there on gives."""
    total, lead = len(recorded.whole), 5
    monkeypatch.setattr(outputs_module, "Endpointer", Silent)
    for onset in range(10, total):
        monkeypatch.setattr(outputs_module, "OnsetDetector", lambda rule, seconds, onset=onset: Foreseen(onset))
        _, (again,) = recorded.run([SHORT[(onset - lead) * round(FRAME_S * RATE) :]])
        final, (rows,) = recorded.run([SHORT], endpointing=True, endpoint_history="reset")
        np.testing.assert_allclose(rows[:onset], recorded.whole[:onset], atol=2e-4)
        np.testing.assert_allclose(rows[onset:], again, atol=2e-4)
        assert recorded.strategy.sessions[0].frames_seen == total
        assert final.audio_seconds == len(SHORT) / RATE


@pytest.mark.parametrize("decoding", METHODS, ids=str)
@pytest.mark.parametrize(("lead", "loud"), [(0.7, 0.0), (3.1, 0.0), (0.7, 1e-3), (3.1, 1e-3)])
def test_what_comes_before_the_first_words_does_them_no_harm(decoding: dict, lead: float, loud: float) -> None:
    engine = demo_engine()
    before = (np.random.default_rng(0).standard_normal(round(lead * RATE)) * loud).astype(np.float32)
    for name in TEXTS:
        (plain,) = engine.transcribe_outputs([clip(name)], decoding=decoding)
        pieces = every(np.concatenate((before, clip(name))), 1600)
        final = listen(engine, pieces, **decoding, **ENDPOINTS)[-1]
        # The model may take noise for a word of its own.
        assert final.text.endswith(plain.text) if loud else final.text == plain.text
        assert final.start is not None and plain.start is not None
        assert loud or final.start == pytest.approx(plain.start + lead, abs=0.15)
        assert final.audio_seconds == pytest.approx(lead + len(clip(name)) / RATE, abs=1e-3)
    assert_idle(engine)


@pytest.mark.parametrize("decoding", METHODS[:2], ids=str)
@pytest.mark.parametrize("pause", [0.35, 0.6, 0.9])
def test_behind_a_pause_that_ends_no_segment_speech_is_heard_as_at_the_start(decoding: dict, pause: float) -> None:
    engine = demo_engine()
    names = sorted(TEXTS, key=lambda name: len(clip(name)))[:3]
    gap = np.zeros(round(pause * RATE), dtype=np.float32)
    samples = np.concatenate([part for name in names for part in (clip(name), gap)])
    final = listen(engine, every(samples, 1600), **decoding, **ENDPOINTS, endpoint_silence_ms=5000)[-1]
    (segment,) = final.segments
    assert segment.text == " ".join(TEXTS[name] for name in names)
    assert segment.words is not None
    assert all(before.end <= after.start + 1e-9 for before, after in pairwise(segment.words))
    assert_idle(engine)


@pytest.mark.parametrize("reset", [False, True])
def test_streams_beside_one_with_endpoints_are_undisturbed(reset: bool) -> None:
    engine = demo_engine()
    names = list(TEXTS)
    streams: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "plain": (said(names[1], names[0])[0], {}),
        "cut": (said(*names[:2])[0], {"endpointing": True, "endpoint_history": "reset" if reset else "keep"}),
        "watched": (said(names[0])[0], {"vad_events": True}),
        "other cut": (said(names[1], names[1])[0], {"endpointing": True, "endpoint_silence_ms": 600}),
    }
    expected = {
        name: engine.transcribe_outputs([samples], decoding=decoding)[0]
        for name, (samples, decoding) in streams.items()
    }
    left = {name: every(samples, 2048) for name, (samples, _) in streams.items()}
    for name, (_, decoding) in streams.items():
        engine.add_streaming_request(name, decoding=decoding)
    rng = random.Random(3)
    outputs: list[RequestOutput] = []
    while left:
        name = rng.choice(sorted(left))
        engine.feed_chunk(name, left[name].pop(0), is_last=not left[name])
        if not left[name]:
            del left[name]
        if rng.random() < 0.5:
            outputs += engine.step()
            assert_consistent(engine)
    found = finals([*outputs, *drain(engine)])
    for name in streams:
        assert_same(found[name], expected[name])
        assert untimed(found[name].segments) == untimed(expected[name].segments)
    assert len(found["plain"].segments) == len(found["watched"].segments) == 1
    assert len(found["cut"].segments) == len(found["other cut"].segments) == 2
    assert_idle(engine)


@pytest.mark.parametrize("history", HISTORIES)
def test_a_stream_may_be_aborted_behind_an_endpoint(history: str) -> None:
    engine = demo_engine()
    samples, _ = said("command.flac")
    for seconds in np.arange(2.5, 3.7, 0.4):
        request_id = engine.add_streaming_request(decoding={"endpointing": True, "endpoint_history": history})
        engine.feed_chunk(request_id, samples[: int(seconds * RATE)])
        drain(engine)
        assert engine.abort_request(request_id)
        assert_idle(engine)


def test_with_its_history_reset_a_stream_gives_its_pages_back() -> None:
    """So that a stream of many segments holds no more than its longest one."""
    engine = demo_engine()
    samples, _ = said(*TEXTS)
    held: dict[str, list[float]] = {}
    for history in HISTORIES:
        request_id = engine.add_streaming_request(decoding={"endpointing": True, "endpoint_history": history})
        held[history] = []
        for piece in every(samples, 3200):
            engine.feed_chunk(request_id, piece)
            drain(engine)
            held[history].append(engine.metrics_snapshot().gauges["engine_kv_blocks_used"])
        engine.abort_request(request_id)
    assert held["keep"] == sorted(held["keep"])
    assert max(held["reset"]) < max(held["keep"])
    assert held["reset"] != sorted(held["reset"])
    assert_idle(engine)


# what else goes on over segments


class BiasedRecorder(RecordingStrategy):
    """Takes hotwords, and remembers which it was given."""

    biases = True

    def __init__(self, setup: DecodeSetup):
        super().__init__(setup)
        self.graphs: list[HotwordGraph | None] = []

    def open(self, hotwords: HotwordGraph | None = None):
        self.graphs.append(hotwords)
        return super().open(hotwords)


def test_every_segment_listens_for_the_streams_hotwords(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = BiasedRecorder(DecodeSetup(0, 0))
    monkeypatch.setitem(STRATEGIES, "recording", StrategyKind(lambda setup: strategy))
    engine = make_engine(decode_method="recording")
    end_behind(monkeypatch, [3, 5, 20])
    listen(engine, [SHORT], hotwords=["dv"], **KEEP)
    assert strategy.graphs[0] is not None
    assert strategy.graphs == [strategy.graphs[0]] * 4
    strategy.graphs.clear()
    listen(engine, [SHORT], **KEEP)
    assert strategy.graphs == [None] * 4


def test_a_hotword_is_heard_in_a_later_segment_as_in_a_clip() -> None:
    """Scored so high that it is heard where it was not said."""
    engine = demo_engine()
    samples, _ = said("command.flac", "digits.flac", "command.flac")
    biased = {"decode_method": "ctc_prefix_beam", "hotwords": ["ENTER FOUR FIVE NINE"], "hotword_score": 3}
    (expected,) = engine.transcribe_outputs([clip("command.flac")], decoding=biased)
    assert expected.text == "ENTER FOUR FIVE NINE"
    for history in HISTORIES:
        decoding = {**biased, "endpointing": True, "endpoint_history": history}
        (final,) = engine.transcribe_outputs([samples], decoding=decoding)
        assert [segment.text for segment in final.segments] == [expected.text, TEXTS["digits.flac"], expected.text]
    assert_idle(engine)


@pytest.mark.parametrize("history", HISTORIES)
def test_events_and_times_are_absolute_without_words_too(history: str) -> None:
    (final,) = demo_engine().transcribe_outputs(
        [said(*TEXTS)[0]], decoding={"endpointing": True, "endpoint_history": history}
    )
    expected = heard(history)[-1]
    assert final.words is None and all(segment.words is None for segment in final.segments)
    assert final.speech_events is None
    assert untimed(final.segments) == untimed(expected.segments)
    assert final.timestamps == expected.timestamps


def test_alternatives_are_those_of_each_segment() -> None:
    samples, _ = said(*TEXTS)
    decoding = {"decode_method": "ctc_prefix_beam", "endpointing": True, "n_best": 3}
    (final,) = demo_engine().transcribe_outputs([samples], decoding=decoding)
    assert len(final.segments) == len(TEXTS)
    for segment in final.segments:
        assert segment.alternatives is not None and 1 <= len(segment.alternatives) <= 3
        assert segment.alternatives[0].text == segment.text
        scores = [one.score for one in segment.alternatives]
        assert scores == sorted(scores, reverse=True)
        assert len({one.text for one in segment.alternatives}) >= 1
    assert final.nbest_texts is not None and final.nbest_texts[0] == final.text
    assert len(final.nbest_texts) == len(final.scores) == len(final.tokens)


def test_alternatives_of_the_last_segment_follow_all_those_before_it() -> None:
    """That one ends with the audio."""
    samples = np.concatenate([said("command.flac")[0], clip("digits.flac")[: 2 * RATE]])
    decoding = {"decode_method": "ctc_prefix_beam", "endpointing": True, "n_best": 3}
    (final,) = demo_engine().transcribe_outputs([samples], decoding=decoding)
    first, last = final.segments
    assert last.endpoint is None and last.alternatives is not None and final.nbest_texts is not None
    assert final.nbest_texts == tuple(f"{first.text} {one.text}" for one in last.alternatives)
    assert len(final.nbest_texts) == len(final.tokens) == 3
    differences = [score - final.scores[0] for score in final.scores]
    assert differences == pytest.approx([one.score - last.alternatives[0].score for one in last.alternatives])


def test_the_padding_behind_the_audio_ends_no_segment() -> None:
    """Half a second of silence is none of a second, whatever is put behind it to let the model hear the end."""
    engine = demo_engine()
    assert engine.config.finalize_silence_pad
    samples = clip("command.flac")[: int((alone("command.flac").timestamps[-1] + 0.5) * RATE)]
    assert len(samples) < len(clip("command.flac"))
    outputs = listen(engine, every(samples, 1600), **ENDPOINTS)
    assert all(output.endpoint is None for output in outputs)
    assert [segment.endpoint for segment in outputs[-1].segments] == [None]


# the second pass


class Counting:
    """A rescorer that remembers how many frames it was given."""

    def __init__(self, rescorer: Rescorer):
        self._rescorer = rescorer
        self.reverse_weight, self.ctc_weight = rescorer.reverse_weight, rescorer.ctc_weight
        self.frames: list[int] = []

    def rescore(self, frames, hypotheses, reverse_weight):
        self.frames.append(frames.shape[1])
        return self._rescorer.rescore(frames, hypotheses, reverse_weight)


def test_every_segment_is_rescored_at_its_end_from_its_own_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    strategy = engine._outputs._decoders.get("attention_rescoring")
    counting = Counting(strategy._rescorer)  # type: ignore[attr-defined]
    monkeypatch.setattr(strategy, "_rescorer", counting)
    listen(engine, [SHORT], two_pass=True)
    (total,) = counting.frames
    counting.frames.clear()
    end_behind(monkeypatch, [5, 20, 33])
    outputs = listen(engine, every(SHORT, 4000), two_pass=True, **KEEP)
    assert counting.frames == [5, 15, 13, total - 33]
    assert outputs[-1].warnings == ()
    assert_idle(engine)


def test_finals_of_two_passes_are_those_of_the_second_and_partials_those_of_the_first() -> None:
    engine = demo_engine()
    samples, _ = said("digits.flac", "command.flac")
    outputs = listen(engine, every(samples, 6400), two_pass=True, **ENDPOINTS)
    beams = listen(engine, every(samples, 6400), decode_method="ctc_prefix_beam", **ENDPOINTS)
    for output, beam in zip(outputs, beams, strict=True):
        live, other = ([one for one in each.segments if not one.is_final] for each in (output, beam))
        assert untimed(live) == untimed(other)
    for segment, name in zip(outputs[-1].segments, ("digits.flac", "command.flac"), strict=True):
        (expected,) = engine.transcribe_outputs([clip(name)], decoding={"two_pass": True})
        assert segment.text == expected.text
    assert_idle(engine)


def test_a_segment_too_long_for_the_second_pass_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(decode_method="attention_rescoring", decode_options={"max_rescored_seconds": 0.4})
    end_behind(monkeypatch, [10, 21, 32])
    outputs = listen(engine, every(SHORT, 4000), **KEEP)
    warning = "a segment of more than 0.4 s was not rescored; its text is the first pass'"
    assert outputs[-1].warnings == (warning,)
    assert outputs[0].warnings == ()
    assert_idle(engine)


# options


@cache
def tiny() -> ASREngine:
    """Shared, so it must be left idle."""
    return make_engine()


def refuse(engine: ASREngine, words: str, streaming: bool = True, **decoding: Any) -> None:
    calls: list[Callable[[], object]] = [lambda: engine.add_request(SHORT, streaming=streaming, decoding=decoding)]
    if streaming:
        calls.append(lambda: engine.add_streaming_request(decoding=decoding))
    for call in calls:
        with pytest.raises(ValueError, match=words):
            call()
    (admission,) = engine.add_requests_batch([{"audio": SHORT, "streaming": streaming, "decoding": decoding}])
    assert admission.request_id is None and isinstance(admission.error, ValueError)
    assert_idle(engine)


@pytest.mark.parametrize(
    "option",
    [
        {"endpointing": True},
        {"vad_events": True},
        {"endpoint_silence_ms": 500},
        {"endpoint_start_ms": 500},
        {"endpoint_max_ms": 500},
        {"endpoint_history": "keep"},
    ],
)
def test_clips_have_no_endpoints(option: dict[str, Any]) -> None:
    (name,) = option
    refuse(tiny(), f"{name} is set, but a clip has no endpoints; leave it out, or stream the clip", False, **option)


@pytest.mark.parametrize(
    "option",
    [{"endpoint_silence_ms": 500}, {"endpoint_start_ms": 500}, {"endpoint_max_ms": 9e3}, {"endpoint_history": "keep"}],
)
def test_options_of_endpoints_need_endpointing(option: dict[str, Any]) -> None:
    (name,) = option
    words = f"{name} is set, but endpointing is off; set endpointing, or leave it out"
    refuse(tiny(), words, **option)
    refuse(tiny(), words, endpointing=False, **option)
    if name != "endpoint_silence_ms":
        refuse(tiny(), words, vad_events=True, **option)


def test_events_alone_may_say_how_long_a_silence_is() -> None:
    outputs = listen(tiny(), [SHORT], vad_events=True, endpoint_silence_ms=200)
    assert len(outputs[-1].segments) <= 1 and all(output.endpoint is None for output in outputs)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"endpointing": 1}, "endpointing is 1; it must be true, false or None"),
        ({"vad_events": None}, "vad_events is None; it must be true or false"),
        ({"endpoint_silence_ms": 39}, "endpoint_silence_ms is 39; it must be from 40 to 3600000 milliseconds"),
        ({"endpoint_start_ms": 4e6}, "endpoint_start_ms is 4000000.0"),
        ({"endpoint_max_ms": True}, "endpoint_max_ms is True"),
        ({"endpoint_max_ms": float("nan")}, "endpoint_max_ms is nan"),
        ({"endpoint_max_ms": "9"}, "endpoint_max_ms is '9'"),
        ({"endpoint_history": "forget"}, "endpoint_history is 'forget'; choose one of keep, reset"),
    ],
)
def test_an_impossible_option_is_refused_by_name(option: dict[str, Any], words: str) -> None:
    refuse(tiny(), words, **{"endpointing": True, **option})


def test_bounds_of_a_request_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny()
    made = end_behind(monkeypatch, [])
    listen(engine, [SHORT], endpointing=True)
    listen(engine, [SHORT], endpointing=True, endpoint_silence_ms=400, endpoint_start_ms=3000, endpoint_max_ms=8000)
    listen(engine, [SHORT], endpointing=True, endpoint_max_ms=7000)
    listen(engine, [SHORT])
    assert [endpointer.rule for endpointer in made] == [
        EndpointRule(5.0, 1.0, 20.0),
        EndpointRule(3.0, 0.4, 8.0),
        EndpointRule(5.0, 1.0, 7.0),
    ]
    assert all(endpointer.seconds_per_frame == pytest.approx(FRAME_S) for endpointer in made)


def test_an_engine_may_have_endpoints_unless_a_request_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    made = end_behind(monkeypatch, [9])
    engine = make_engine(endpointing=True, endpoint_silence_ms=700, endpoint_history="keep")
    outputs = listen(engine, [SHORT])
    assert [output.endpoint.frame for output in outputs if output.endpoint] == [9]
    assert [endpointer.rule for endpointer in made] == [EndpointRule(5.0, 0.7, 20.0)]
    assert all(output.endpoint is None for output in listen(engine, [SHORT], endpointing=False))
    assert len(made) == 1
    # A clip has none, whatever streams have.
    (clip_output,) = engine.transcribe_outputs([SHORT], streaming=False)
    assert len(clip_output.segments) == 1
    # An option of endpoints needs nothing beside it.
    listen(engine, [SHORT], endpoint_max_ms=9000)
    assert made[1].rule == EndpointRule(5.0, 0.7, 9.0)


def test_an_engine_of_clips_alone_cannot_have_endpoints() -> None:
    with pytest.raises(ConfigError, match="endpointing is set but service_mode 'offline' serves clips"):
        make_engine(endpointing=True, service_mode="offline")


@pytest.mark.parametrize(
    ("decoding", "audio", "reasons"),
    [
        ({"endpoint_silence_ms": 400}, PAUSE, ["silence"]),
        ({"endpoint_start_ms": 200}, PAUSE, ["no_speech"]),
        ({"endpoint_max_ms": 1000}, PAUSE[:0], ["length", "length"]),
    ],
)
def test_a_segment_ends_for_each_reason(decoding: dict[str, Any], audio: np.ndarray, reasons: list[str]) -> None:
    samples = np.concatenate([clip("digits.flac"), audio])
    outputs = listen(demo_engine(), every(samples, 640), endpoint_history="keep", endpointing=True, **decoding)
    told = [output.endpoint.reason for output in outputs if output.endpoint]
    assert told[: len(reasons)] == reasons
    assert_idle(demo_engine())


@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [("command.flac", 560), ("command.flac", 760), ("digits.flac", 600), ("digits.flac", 1400), ("number.flac", 1360)],
)
def test_a_segment_that_is_cut_in_speech_repeats_no_token(name: str, milliseconds: int) -> None:
    """Though the cut may lie between two frames of one token."""
    decoding = {"endpointing": True, "endpoint_max_ms": milliseconds}
    (final,) = demo_engine().transcribe_outputs([clip(name)], decoding=decoding)
    assert len(final.segments) > 1
    assert final.tokens == alone(name).tokens


def test_a_segment_without_text_is_none() -> None:
    """Five seconds of silence end a segment, and again, and nobody said anything."""
    silence = np.zeros(12 * RATE, dtype=np.float32)
    outputs = listen(demo_engine(), every(silence, 3200), **ENDPOINTS, endpoint_history="keep", vad_events=True)
    told = [output.endpoint for output in outputs if output.endpoint]
    assert [(endpoint.reason, endpoint.frame) for endpoint in told] == [("no_speech", 125), ("no_speech", 250)]
    assert all(output.segments == () and not output.speech_events for output in outputs)
    assert (outputs[-1].text, outputs[-1].start, outputs[-1].end, outputs[-1].words) == ("", None, None, ())
