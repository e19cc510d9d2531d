"""Recordings longer than a window: cut, heard beside everything else, and answered as one."""

import json
import logging
import weakref
from collections.abc import Callable
from functools import cache
from typing import get_args

import jiwer
import numpy as np
import pytest
import soundfile

from oasr_backend.decode.base import STRATEGIES, DecodeSession, Hypothesis, StrategyKind
from oasr_backend.decode.greedy import GreedyStrategy
from oasr_backend.engine import ASREngine, RequestOutput, longform
from oasr_backend.engine.request import ErrorStage, Request
from oasr_backend.errors import ConfigError
from oasr_backend.utils.paths import assets_dir, demo_checkpoint_dir
from tests.engine.engines import (
    assert_idle,
    assert_same,
    cut,
    demo_engine,
    drain,
    failing_once,
    finals,
    make_engine,
    speech,
    stream,
)

RATE = 16000
TEXTS: dict[str, str] = json.loads((assets_dir() / "clips" / "clips.json").read_text(encoding="utf-8"))
NAMES = list(TEXTS)
GAP = 0.5
# What times may differ by between a clip alone and the same words in a window: two encoder frames.
TOLERANCE = 0.08 + 1e-6
# A sample that no speech holds.
MARK = np.float32(0.8765432)

MODES = ("offline", "mixed")


def recorder_of(**options: object) -> ASREngine:
    """A tiny engine that cuts into windows of a second, a quarter of which neighbours share."""
    settings: dict[str, object] = {
        "long_form": True,
        "long_form_window_seconds": 1.0,
        "long_form_overlap_seconds": 0.25,
        "gc_freeze": False,
    }
    return make_engine(**{**settings, **options})


@cache
def demo_recorder(window: float = 4.0) -> ASREngine:
    """The bundled checkpoint, cutting into windows of so many seconds; shared, so it must be left idle."""
    return recorder_of(
        path=demo_checkpoint_dir(),
        service_mode="offline",
        long_form_window_seconds=window,
        long_form_overlap_seconds=0.5,
    )


@cache
def clip(name: str) -> np.ndarray:
    samples, rate = soundfile.read(assets_dir() / "clips" / name, dtype="float32")
    assert rate == RATE
    return samples


def joined(names: list[str]) -> tuple[np.ndarray, list[float]]:
    """Clips with silence between them, and the second at which each starts."""
    silence = np.zeros(round(GAP * RATE), dtype=np.float32)
    parts: list[np.ndarray] = []
    starts = []
    for name in names:
        starts.append(sum(map(len, parts)) / RATE)
        parts += [clip(name), silence]
    return np.concatenate(parts[:-1]), starts


@cache
def alone(name: str) -> RequestOutput:
    """A clip by itself, words and all."""
    engine = demo_engine()
    return engine.transcribe_outputs([clip(name)], streaming=False, decoding={"word_timestamps": True})[0]


def windows_of(engine: ASREngine) -> list[Request]:
    """The windows that wait."""
    return [request for request in engine._scheduler.waiting() if request.parent_id is not None]


def marked(samples: np.ndarray, at: float) -> np.ndarray:
    """The samples with the mark at a share of their length."""
    copy = samples.copy()
    copy[int(at * (len(samples) - 1))] = MARK
    return copy


def fail_what_is_marked(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch, error: Callable[[], Exception], times: int = 1000
) -> None:
    """Any batch with a marked clip or window fails in its features, so many times."""
    clips = engine._inputs.clips
    left = iter(range(times))

    def fragile(waves: list[np.ndarray]) -> object:
        if any((wave == MARK).any() for wave in waves) and next(left, None) is not None:
            raise error()
        return clips(waves)

    monkeypatch.setattr(engine._inputs, "clips", fragile)


# what is heard


@pytest.mark.parametrize("names", [NAMES, [NAMES[1], NAMES[0]], [NAMES[2], NAMES[1], NAMES[0], NAMES[1]]])
def test_cut_in_silence_a_recording_is_its_clips_one_after_another(names: list[str]) -> None:
    engine = demo_recorder()
    samples, starts = joined(names)
    request_id = engine.add_request(samples, "mine", streaming=False, decoding={"word_timestamps": True})
    (output,) = drain(engine)
    assert request_id == output.request_id == "mine"
    assert output.text == " ".join(alone(name).text for name in names) == " ".join(TEXTS[name] for name in names)
    assert output.tokens == (tuple(token for name in names for token in alone(name).tokens[0]),)
    assert (output.finished, output.finish_reason, output.error_stage, output.error) == (True, "stop", None, None)
    assert output.audio_seconds == len(samples) / RATE and output.samples_done == len(samples)
    assert output.nbest_texts is None
    times = [start + time for name, start in zip(names, starts, strict=True) for time in alone(name).timestamps]
    np.testing.assert_allclose(output.timestamps, times, atol=TOLERANCE)
    # Windows hear what the clips hear, and a little silence.
    assert output.confidence == pytest.approx(
        np.average([alone(name).confidence or 0 for name in names], weights=[len(alone(n).tokens[0]) for n in names]),
        abs=0.05,
    )
    assert_idle(engine)


def test_its_words_are_those_of_the_clips_at_their_places() -> None:
    engine = demo_recorder()
    samples, starts = joined(NAMES)
    (output,) = engine.transcribe_outputs([samples], streaming=False, decoding={"word_timestamps": True})
    assert output.words is not None
    expected = [
        (word.word, start + word.start, start + word.end)
        for name, start in zip(NAMES, starts, strict=True)
        for word in alone(name).words or ()
    ]
    assert [word.word for word in output.words] == [word for word, _, _ in expected]
    for word, (_, start, end) in zip(output.words, expected, strict=True):
        assert word.start < word.end
        # The first word behind a pause starts at most so long before its peak, wherever its window begins.
        assert word.start == pytest.approx(start, abs=TOLERANCE)
        assert word.end == pytest.approx(end, abs=TOLERANCE)
    assert output.start == output.words[0].start and output.end == output.words[-1].end
    assert_idle(engine)


def test_windows_that_share_speech_lose_and_repeat_nothing() -> None:
    """Two seconds are shorter than any clip, so that every other cut falls into speech."""
    engine = demo_recorder(2.0)
    samples, _ = joined(NAMES * 2)
    rule = engine._recordings._rule
    assert sum(window.shared > 0 for window in longform.cut(samples, rule)) > 3
    (output,) = engine.transcribe_outputs([samples], streaming=False, decoding={"word_timestamps": True})
    assert jiwer.wer(" ".join([*TEXTS.values()] * 2), output.text) <= 0.06
    assert output.words is not None and [word.word for word in output.words] == output.text.split()
    assert list(output.timestamps) == sorted(output.timestamps)
    assert_idle(engine)


@pytest.mark.parametrize("mode", MODES)
def test_the_parts_of_an_output_belong_together(mode: str) -> None:
    engine = recorder_of(service_mode=mode)
    samples = speech(10 * RATE)
    (output,) = engine.transcribe_outputs([samples], streaming=False, decoding={"word_timestamps": True})
    assert len(output.tokens) == len(output.scores) == 1 and output.scores[0] < 0
    assert len(output.tokens[0]) == len(output.timestamps) > 20
    assert output.words is not None and len(output.words) > 3
    assert output.text.split() and "".join(output.text.split()) == "".join(word.word for word in output.words)
    assert all(0 < word.confidence <= 1 for word in output.words)
    assert output.confidence is not None and 0 < output.confidence <= 1
    assert output.start is not None and output.end is not None
    assert 0 <= output.start <= output.timestamps[0] <= output.timestamps[-1] <= output.end <= output.audio_seconds
    assert_idle(engine)


@pytest.mark.parametrize("utterance", range(3))
def test_times_never_go_back_at_a_seam(utterance: int) -> None:
    """Whatever two windows heard of the audio they share, what is kept lies in order."""
    samples = speech(14 * RATE, utterance)
    (output,) = recorder_of().transcribe_outputs([samples], streaming=False, decoding={"word_timestamps": True})
    assert list(output.timestamps) == sorted(output.timestamps)
    assert output.words is not None
    assert all(word.start < word.end for word in output.words)
    starts = [word.start for word in output.words]
    assert starts == sorted(starts)


def test_without_word_timestamps_there_are_no_words() -> None:
    (output,) = recorder_of().transcribe_outputs([speech(3 * RATE)], streaming=False)
    assert output.words is None


@pytest.mark.parametrize("tail", [1, 399, 1359])
def test_a_last_window_too_short_for_a_frame_adds_nothing(tail: int) -> None:
    engine = recorder_of(service_mode="offline", long_form_overlap_seconds=0.0)
    noise = np.random.default_rng(1).uniform(-1, 1, 3 * RATE + tail).astype(np.float32)
    lengths = [window.end - window.start for window in longform.cut(noise, engine._recordings._rule)]
    assert lengths == [RATE, RATE, RATE, tail]
    (whole,) = engine.transcribe_outputs([noise[: 3 * RATE]], streaming=False)
    (output,) = engine.transcribe_outputs([noise], streaming=False)
    assert (output.text, output.tokens, output.timestamps) == (whole.text, whole.tokens, whole.timestamps)
    assert (output.finish_reason, output.audio_seconds) == ("stop", 3 + tail / RATE)
    assert output.text
    assert_idle(engine)


def test_a_recording_of_silence_is_empty() -> None:
    engine = demo_recorder()
    samples = np.zeros(20 * RATE, dtype=np.float32)
    (output,) = engine.transcribe_outputs([samples], streaming=False, decoding={"word_timestamps": True})
    assert (output.text, output.tokens, output.timestamps, output.words) == ("", ((),), (), ())
    assert (output.start, output.end, output.confidence) == (None, None, None)
    assert (output.finish_reason, output.audio_seconds) == ("stop", 20.0)
    assert_idle(engine)


def test_packed_windows_say_the_same() -> None:
    samples = speech(8 * RATE, 1)
    (expected,) = recorder_of().transcribe_outputs([samples], streaming=False)
    engine = recorder_of(enable_sequence_packing=True)
    assert_same(engine.transcribe_outputs([samples], streaming=False)[0], expected)
    assert_idle(engine)


def test_a_clip_no_longer_than_a_window_takes_the_normal_path() -> None:
    plain, engine = make_engine(gc_freeze=False), recorder_of()
    for samples in (0, 400, 9000, RATE):
        request_id = engine.add_request(speech(samples), streaming=False)
        assert not engine._recordings and windows_of(engine) == []
        assert_same(finals(engine.run())[request_id], plain.transcribe_outputs([speech(samples)], streaming=False)[0])
    request_id = engine.add_request(speech(RATE + 1), streaming=False)
    assert list(engine._recordings) == [request_id] and len(windows_of(engine)) == 2
    assert finals(engine.run())[request_id].audio_seconds == (RATE + 1) / RATE
    assert_idle(engine)


def test_streams_are_not_cut() -> None:
    plain, engine = make_engine(gc_freeze=False), recorder_of()
    samples = speech(4 * RATE)
    expected = stream(plain, [samples])
    attached = engine.add_request(samples)
    assert windows_of(engine) == [] and not engine._recordings
    assert_same(finals(engine.run())[attached], expected)
    assert_same(stream(engine, cut(samples, [7000] * 20)), expected)
    assert "engine_batch_size:offline" not in engine.metrics_snapshot().samples
    assert_idle(engine)


def test_an_engine_that_only_streams_cuts_nothing() -> None:
    with pytest.raises(ConfigError, match="long_form is true but service_mode 'streaming' serves no offline clips"):
        recorder_of(service_mode="streaming")


# one among many


@pytest.mark.parametrize("mode", MODES)
def test_recordings_and_clips_at_once_get_an_output_each(mode: str) -> None:
    engine, single = recorder_of(service_mode=mode), recorder_of(service_mode=mode)
    seconds = [3.0, 0.5, 7.5, 1.0, 12.0, 0.0, 0.02, 5.0, 0.8]
    waves = {f"{index}": speech(int(s * RATE), index % 3) for index, s in enumerate(seconds)}
    for name, samples in waves.items():
        engine.add_request(samples, name, streaming=False)
    outputs = drain(engine)
    assert all(output.finished for output in outputs)
    ended = finals(outputs)
    assert set(ended) == set(waves)
    for name, samples in waves.items():
        assert_same(ended[name], single.transcribe_outputs([samples], streaming=False)[0])
    assert_idle(engine)


def test_recordings_beside_streams() -> None:
    engine, plain = recorder_of(), make_engine(gc_freeze=False)
    samples = speech(4 * RATE)
    streamed = stream(plain, [samples])
    (recorded,) = engine.transcribe_outputs([samples], streaming=False)
    for turn in range(3):
        engine.add_request(samples, f"stream {turn}")
        engine.add_request(samples, f"recording {turn}", streaming=False)
    ended = finals(drain(engine))
    assert len(ended) == 6
    for name, output in ended.items():
        assert_same(output, streamed if name.startswith("stream") else recorded)
    assert_idle(engine)


def test_a_list_with_recordings_keeps_its_order() -> None:
    engine, single = recorder_of(), recorder_of()
    clips = [speech(6 * RATE, 0), speech(9000, 1), speech(2 * RATE, 2), speech(15000, 0)]
    texts = engine.transcribe_offline(clips)
    assert texts == [single.transcribe_offline(samples) for samples in clips]
    assert len(set(texts)) == len(texts)


def test_a_short_clip_is_answered_while_a_recording_is_under_way() -> None:
    engine = recorder_of(service_mode="offline")
    engine.add_request(speech(60 * RATE), "recording", streaming=False)
    engine.step()
    engine.add_request(speech(9000), "clip", streaming=False)
    order = [output.request_id for _ in range(4) for output in engine.step()]
    assert order == ["clip"]
    assert [output.request_id for output in drain(engine)] == ["recording"]
    assert_idle(engine)


def test_a_short_recording_ends_before_a_long_one_that_came_first() -> None:
    engine = recorder_of(service_mode="offline")
    engine.add_request(speech(60 * RATE), "long", streaming=False)
    engine.step()
    engine.add_request(speech(4 * RATE, 1), "short", streaming=False)
    assert [output.request_id for output in drain(engine)] == ["short", "long"]


def test_a_recording_fills_batches() -> None:
    engine = recorder_of(service_mode="offline")
    engine.transcribe_offline(speech(30 * RATE))
    sizes = engine.metrics_snapshot().samples["engine_batch_size:offline"]
    assert sizes[0] == engine.config.max_batch_size and sum(sizes) > 30
    assert len(sizes) < sum(sizes) / 2


def test_priorities_carry_over_to_windows() -> None:
    engine = recorder_of(service_mode="offline", max_batch_size=1)
    engine.add_request(speech(3 * RATE), "late", streaming=False, priority=1)
    engine.step()
    engine.add_request(speech(8000), "clip", streaming=False)
    engine.add_request(speech(3 * RATE), "early", streaming=False, priority=-1)
    assert {request.priority for request in windows_of(engine) if request.parent_id == "early"} == {-1}
    assert [output.request_id for output in drain(engine)] == ["early", "clip", "late"]


def test_preferred_batch_sizes_hold_no_recording_for_ever() -> None:
    engine = recorder_of(service_mode="offline", preferred_batch_size=(4,))
    assert engine.transcribe_offline(speech(3 * RATE)) == recorder_of().transcribe_offline(speech(3 * RATE))
    assert_idle(engine)


# windows are nobody else's business


def test_windows_never_show() -> None:
    engine = recorder_of()
    engine.add_request(speech(20 * RATE), "mine", streaming=False)
    seen: set[str] = set()
    outputs = []
    while engine.has_work:
        for request in windows_of(engine):
            seen.add(request.request_id)
            assert engine.abort_request(request.request_id) is False
            with pytest.raises(KeyError):
                engine.feed_chunk(request.request_id, speech(400))
        outputs += engine.step()
    assert len(seen) > 20 and "mine" not in seen
    assert [output.request_id for output in outputs] == ["mine"]
    assert_same(outputs[0], recorder_of().transcribe_outputs([speech(20 * RATE)], streaming=False)[0])


def window_ids() -> list[str]:
    """How an engine names the windows of a recording "mine"."""
    engine = recorder_of(service_mode="offline")
    engine.add_request(speech(20 * RATE), "mine", streaming=False)
    names: dict[str, None] = {}
    while engine.has_work:
        names |= dict.fromkeys(request.request_id for request in windows_of(engine))
        engine.step()
    return list(names)


@pytest.mark.parametrize("index", [0, 3, 12], ids=["first", "among the first", "later"])
def test_a_request_that_is_named_like_a_window_is_in_nobodys_way(index: int) -> None:
    name = window_ids()[index]
    engine = recorder_of()
    expected = recorder_of().transcribe_outputs([speech(20 * RATE)], streaming=False)[0]
    engine.add_streaming_request(name)
    engine.add_request(speech(20 * RATE), "mine", streaming=False)
    outputs = drain(engine)
    engine.feed_chunk(name, [], is_last=True)
    ended = finals([*outputs, *drain(engine)])
    assert set(ended) == {"mine", name}
    assert_same(ended["mine"], expected)
    assert_idle(engine)


def test_the_id_of_a_recording_is_taken_while_it_is_under_way() -> None:
    engine = recorder_of()
    engine.add_request(speech(8 * RATE), "mine", streaming=False)
    for _ in range(2):
        for add in (
            lambda: engine.add_request(speech(8 * RATE), "mine", streaming=False),
            lambda: engine.add_request(speech(400), "mine", streaming=False),
            lambda: engine.add_request(speech(400), "mine"),
            lambda: engine.add_streaming_request("mine"),
        ):
            with pytest.raises(ValueError, match="'mine' is in use"):
                add()
        engine.step()
    assert list(finals(drain(engine))) == ["mine"]
    engine.add_request(speech(8 * RATE), "mine", streaming=False)
    assert engine.abort_request("mine")
    assert engine.add_request(speech(400), "mine", streaming=False) == "mine"
    assert list(finals(drain(engine))) == ["mine"]
    assert_idle(engine)


@pytest.mark.parametrize("kind", ["stream", "attached", "clip", "running stream"])
def test_a_recording_is_refused_the_id_of_what_lives(kind: str) -> None:
    engine = recorder_of()
    if kind in ("stream", "running stream"):
        engine.add_streaming_request("mine")
    else:
        engine.add_request(speech(9000), "mine", streaming=kind == "attached")
    if kind == "running stream":
        engine.step()
    with pytest.raises(ValueError, match="'mine' is in use"):
        engine.add_request(speech(3 * RATE), "mine", streaming=False)
    assert windows_of(engine) == []
    assert engine.abort_request("mine") and not engine.abort_request("mine")
    assert_idle(engine)


def test_a_recording_is_no_stream_to_feed() -> None:
    engine = recorder_of()
    engine.add_request(speech(3 * RATE), "mine", streaming=False)
    with pytest.raises(KeyError, match="no stream 'mine'"):
        engine.feed_chunk("mine", speech(400))
    assert list(finals(drain(engine))) == ["mine"]


# what cannot be had


class TwoBest(GreedyStrategy):
    """Says the best path, and it without its last token."""

    max_n_best = 2

    def n_best(self, session: DecodeSession, count: int) -> list[Hypothesis]:
        best = self.best(session)
        shorter = Hypothesis(best.tokens[:-1], best.frames[:-1], best.confidences[:-1], best.score - 1)
        return [best, shorter][:count]


@pytest.fixture
def two_best(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The options of an engine that gives alternatives."""
    monkeypatch.setitem(STRATEGIES, "two_best", StrategyKind(TwoBest))
    return {"decode_method": "two_best"}


def test_alternatives_of_a_recording_are_refused_and_of_a_clip_given(two_best: dict[str, object]) -> None:
    engine = recorder_of(**two_best)
    message = (
        r"n_best is 2, but a recording of 3\.0 s is decoded in windows of 1 s, whose alternatives cannot be joined"
    )
    with pytest.raises(ValueError, match=message):
        engine.add_request(speech(3 * RATE), streaming=False, decoding={"n_best": 2})
    (admission,) = engine.add_requests_batch(
        [{"audio": speech(3 * RATE), "streaming": False, "decoding": {"n_best": 2}}]
    )
    with pytest.raises(ValueError, match=message):
        raise admission.error or AssertionError("it was admitted")
    assert_idle(engine)
    (clip_output,) = engine.transcribe_outputs([speech(RATE)], streaming=False, decoding={"n_best": 2})
    assert clip_output.nbest_texts is not None and len(clip_output.tokens) == len(clip_output.nbest_texts) == 2
    (streamed,) = engine.transcribe_outputs([speech(3 * RATE)], decoding={"n_best": 2})
    assert streamed.nbest_texts is not None and len(streamed.tokens) == 2
    (recording,) = engine.transcribe_outputs([speech(3 * RATE)], streaming=False, decoding={"n_best": 1})
    assert recording.text and recording.nbest_texts is None and len(recording.tokens) == 1
    assert_idle(engine)


def test_alternatives_of_a_recording_are_refused_as_an_output_when_it_is_prepared_aside(
    two_best: dict[str, object],
) -> None:
    engine = recorder_of(overlap_admit=True, **two_best)
    engine.add_request(speech(3 * RATE), "mine", streaming=False, decoding={"n_best": 2})
    (output,) = drain(engine)
    assert (output.request_id, output.finish_reason, output.error_stage) == ("mine", "error", "offline_prep")
    assert output.error is not None and "whose alternatives cannot be joined" in output.error
    assert_idle(engine)


def test_a_recording_has_a_limit_of_its_own() -> None:
    engine = recorder_of(max_audio_seconds=5.0)
    with pytest.raises(ValueError, match=r"lasts 6\.0 s and max_audio_seconds is 5; cut it"):
        engine.add_request(speech(6 * RATE), streaming=False)
    assert_idle(engine)
    assert engine.transcribe_offline(speech(5 * RATE))
    assert recorder_of().config.max_audio_seconds > make_engine(gc_freeze=False).config.max_audio_seconds


# the end of one


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [*range(6), 10, 20])
def test_a_recording_can_be_aborted_at_any_time(steps: int, mode: str) -> None:
    engine = recorder_of(service_mode=mode, max_batch_size=2)
    engine.add_request(speech(10 * RATE), "doomed", streaming=False)
    engine.add_request(speech(2 * RATE, 1), "neighbour", streaming=False)
    outputs = [output for _ in range(steps) for output in engine.step()]
    assert engine.abort_request("doomed") is ("doomed" not in finals(outputs))
    assert engine.abort_request("doomed") is False
    assert {request.parent_id for request in windows_of(engine)} <= {"neighbour"}
    after = drain(engine)
    assert "doomed" not in {output.request_id for output in after}
    (expected,) = engine.transcribe_outputs([speech(2 * RATE, 1)], streaming=False)
    assert_same(finals([*outputs, *after])["neighbour"], expected)
    assert_idle(engine)


def test_an_aborted_recording_is_counted_once() -> None:
    engine = recorder_of()
    engine.add_request(speech(10 * RATE), "mine", streaming=False)
    engine.step()
    engine.abort_request("mine")
    counters = engine.metrics_snapshot().counters
    assert counters["requests_cancelled:offline"] == counters["requests_admitted:offline"] == 1
    assert_idle(engine)


def test_a_recording_is_counted_as_one_request() -> None:
    engine = recorder_of()
    (output,) = engine.transcribe_outputs([speech(10 * RATE)], streaming=False)
    counters = engine.metrics_snapshot().counters
    assert counters["requests_admitted:offline"] == 1
    assert counters["engine_audio_seconds:offline"] == 10.0
    assert counters["engine_tokens_generated"] == len(output.tokens[0])


def test_shutdown_ends_recordings() -> None:
    engine = recorder_of()
    for name in ("a", "b"):
        engine.add_request(speech(20 * RATE), name, streaming=False)
    engine.step()
    engine.shutdown()
    assert_idle(engine)
    assert drain(engine) == []


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0], ids=["first", "middle", "last"])
@pytest.mark.parametrize(("error", "stage"), [(RuntimeError, "offline_forward"), (MemoryError, "offline_oom")])
def test_a_window_that_fails_ends_its_recording_with_one_error(
    at: float, error: Callable[[], Exception], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = recorder_of(service_mode="offline", max_batch_size=1)
    samples = speech(8 * RATE)
    (expected,) = engine.transcribe_outputs([samples], streaming=False)
    (clip_output,) = engine.transcribe_outputs([speech(9000)], streaming=False)
    fail_what_is_marked(engine, monkeypatch, error)
    engine.add_request(marked(samples, at), "bad", streaming=False)
    engine.add_request(samples, "good", streaming=False)
    engine.add_request(speech(9000), "clip", streaming=False)
    outputs: list[RequestOutput] = []
    while "bad" not in finals(outputs):
        outputs += engine.step()
    assert {request.parent_id for request in windows_of(engine)} <= {"good"}
    bad = finals(outputs)["bad"]
    assert (bad.finished, bad.finish_reason, bad.error_stage) == (True, "error", stage)
    assert (bad.text, bad.tokens, bad.timestamps, bad.words) == ("", ((),), (), None)
    assert bad.error == f"{error.__name__} in {stage}"  # type: ignore[attr-defined]
    assert (bad.audio_seconds, bad.samples_done) == (8.0, len(samples))
    outputs += drain(engine)
    assert set(finals(outputs)) == {"bad", "good", "clip"}
    assert_same(finals(outputs)["good"], expected)
    assert_same(finals(outputs)["clip"], clip_output)
    assert_idle(engine)
    assert engine.add_request(samples, "bad", streaming=False) == "bad"
    assert_same(finals(engine.run())["bad"], expected)


def test_in_one_batch_only_the_recording_of_the_failing_window_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = recorder_of(service_mode="offline")
    samples = speech(4 * RATE)
    (expected,) = engine.transcribe_outputs([samples], streaming=False)
    fail_what_is_marked(engine, monkeypatch, RuntimeError)
    engine.add_request(marked(samples, 0.2), "bad", streaming=False)
    engine.add_request(samples, "good", streaming=False)
    ended = finals(drain(engine))
    assert (ended["bad"].error_stage, ended["good"].error_stage) == ("offline_forward", None)
    assert_same(ended["good"], expected)
    assert_idle(engine)


def test_a_window_that_fails_in_a_batch_and_not_alone_fails_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = recorder_of(service_mode="offline")
    samples = marked(speech(4 * RATE), 0.5)
    (expected,) = engine.transcribe_outputs([samples], streaming=False)
    fail_what_is_marked(engine, monkeypatch, RuntimeError, times=1)
    assert_same(engine.transcribe_outputs([samples], streaming=False)[0], expected)
    assert "requests_failed:offline_forward" not in engine.metrics_snapshot().counters


@pytest.mark.parametrize(("error", "stage"), [(RuntimeError, "offline_forward"), (MemoryError, "offline_oom")])
def test_a_recording_that_fails_in_several_windows_is_one_failed_request(
    error: Callable[[], Exception], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = recorder_of(service_mode="offline")
    fail_what_is_marked(engine, monkeypatch, error)
    samples = speech(6 * RATE)
    samples[:: RATE // 4] = MARK
    engine.add_request(samples, "bad", streaming=False)
    assert finals(drain(engine))["bad"].error_stage == stage
    assert engine.metrics_snapshot().counters[f"requests_failed:{stage}"] == 1
    assert_idle(engine)


def test_a_recording_that_cannot_be_joined_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after the last window has been heard is that recording's error and no other's."""
    engine = recorder_of(service_mode="offline")
    samples = speech(3 * RATE)
    (expected,) = engine.transcribe_outputs([samples], streaming=False)
    (clip_output,) = engine.transcribe_outputs([speech(9000)], streaming=False)
    outputs = engine._outputs
    monkeypatch.setattr(
        outputs, "recording_output", failing_once(outputs.recording_output, RuntimeError("secret detail"))
    )
    for name, audio in (("bad", samples), ("clip", speech(9000)), ("good", samples)):
        engine.add_request(audio, name, streaming=False)
    ended = finals(drain(engine))
    assert set(ended) == {"bad", "clip", "good"}
    assert ended["bad"].finish_reason == "error" and ended["bad"].error_stage in get_args(ErrorStage)
    assert ended["bad"].error is not None and "secret detail" not in ended["bad"].error
    assert_same(ended["clip"], clip_output)
    assert_same(ended["good"], expected)
    assert_idle(engine)


def test_a_window_whose_tokens_have_no_text_ends_its_recording_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = recorder_of(service_mode="offline")
    (clip_output,) = engine.transcribe_outputs([speech(9000)], streaming=False)
    outputs = engine._outputs
    monkeypatch.setattr(outputs, "pieces", failing_once(outputs.pieces, RuntimeError("no such piece")))
    engine.add_request(speech(3 * RATE), "bad", streaming=False)
    engine.add_request(speech(9000), "clip", streaming=False)
    ended = finals(drain(engine))
    assert set(ended) == {"bad", "clip"}
    assert ended["bad"].finish_reason == "error" and ended["bad"].error_stage in get_args(ErrorStage)
    assert_same(ended["clip"], clip_output)
    assert_idle(engine)


# memory


def held(engine: ASREngine) -> np.ndarray:
    """The samples of the only recording."""
    (recording,) = engine._recordings._recordings.values()
    return recording.samples


def test_windows_are_views_of_the_recording() -> None:
    engine = recorder_of(service_mode="offline")
    samples = speech(30 * RATE)
    engine.add_request(samples, "mine", streaming=False)
    whole = held(engine)
    assert not np.shares_memory(whole, samples), "the caller may overwrite its buffer"
    seen = 0
    while windows_of(engine):
        waiting = windows_of(engine)
        assert len(waiting) <= 8
        for window in waiting:
            assert window.audio is not None and np.shares_memory(window.audio, whole)
            assert len(window.audio) == window.samples_received <= RATE
        seen += len(waiting)
        engine.step()
    assert seen > 30


def test_a_client_may_overwrite_its_buffer() -> None:
    engine = recorder_of(service_mode="offline")
    buffer = speech(4 * RATE).copy()
    (expected,) = engine.transcribe_outputs([buffer], streaming=False)
    engine.add_request(buffer, "mine", streaming=False)
    buffer[:] = 1
    assert_same(finals(drain(engine))["mine"], expected)


def failed(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_what_is_marked(engine, monkeypatch, RuntimeError)
    drain(engine)


ENDS: dict[str, Callable[[ASREngine, pytest.MonkeyPatch], object]] = {
    "answered": lambda engine, _: drain(engine),
    "aborted": lambda engine, _: engine.abort_request("mine"),
    "shut down": lambda engine, _: engine.shutdown(),
    "failed": failed,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_recording_that_is_over_holds_no_audio(
    end: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # What is logged of an error holds the frames that raised it.
    caplog.set_level(logging.CRITICAL)
    engine = recorder_of(service_mode="offline")
    engine.add_request(marked(speech(20 * RATE), 0.9), "mine", streaming=False)
    samples = weakref.ref(held(engine))
    engine.step()
    assert samples() is not None
    ENDS[end](engine, monkeypatch)
    assert samples() is None
    assert_idle(engine)
