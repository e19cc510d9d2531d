"""Streams whose client wants final segments alone: `partials` false."""

import numpy as np
import pytest
import soundfile

from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.errors import OptionError
from oasr_backend.utils.paths import assets_dir
from tests.engine.engines import demo_engine, make_engine

RATE = 16000


def clip(name: str) -> np.ndarray:
    samples, _ = soundfile.read(assets_dir() / "clips" / name, dtype="float32")
    return samples


def outputs_of(engine: ASREngine, samples: np.ndarray, **options: object) -> list[RequestOutput]:
    """All outputs of a stream that is fed 320 ms at a time."""
    request_id = engine.add_streaming_request(decoding=options)
    outputs = []
    for start in range(0, len(samples), RATE // 3):
        engine.feed_chunk(request_id, samples[start : start + RATE // 3])
        outputs += engine.step()
    engine.feed_chunk(request_id, samples[:0], is_last=True)
    while engine.has_work:
        outputs += engine.step()
    return outputs


@pytest.mark.parametrize("method", ["ctc_greedy", "ctc_prefix_beam", "attention_rescoring"])
def test_without_endpoints_nothing_is_told_before_the_end(method: str) -> None:
    spoken = clip("digits.flac")
    plain = outputs_of(demo_engine(), spoken, decode_method=method, word_timestamps=True)
    quiet = outputs_of(demo_engine(), spoken, decode_method=method, word_timestamps=True, partials=False)
    assert any(output.text for output in plain[:-1])
    for output in quiet[:-1]:
        assert (output.text, output.segments, output.tokens, output.confidence) == ("", (), ((),), None)
    # What was not rendered on the way is none the worse in the end.
    for name in ("text", "segments", "tokens", "scores", "timestamps", "confidence", "words", "finish_reason"):
        assert getattr(quiet[-1], name) == getattr(plain[-1], name), name
    assert [output.samples_done for output in quiet] == [output.samples_done for output in plain]


def test_with_endpoints_answers_hold_the_segments_that_are_final() -> None:
    pause = np.zeros(RATE * 2, dtype=np.float32)
    spoken = np.concatenate([clip("digits.flac"), pause, clip("command.flac"), pause])
    options = {"endpointing": True, "vad_events": True, "endpoint_history": "keep"}
    plain = outputs_of(demo_engine(), spoken, **options)
    quiet = outputs_of(demo_engine(), spoken, partials=False, **options)
    for told, all_told in zip(quiet, plain, strict=True):
        assert told.segments == tuple(segment for segment in all_told.segments if segment.is_final)
        assert told.text == " ".join(segment.text for segment in told.segments)
        assert (told.endpoint, told.speech_events) == (all_told.endpoint, all_told.speech_events)
    assert quiet[-1].segments == plain[-1].segments
    assert len(quiet[-1].segments) == 2
    assert len({output.text for output in quiet}) == 3


def test_the_best_hypothesis_is_not_asked_for_where_nobody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    strategy = engine._outputs._decoders.get(None)
    asked = []
    best = strategy.best
    monkeypatch.setattr(strategy, "best", lambda session: asked.append(1) or best(session))
    outputs_of(engine, clip("digits.flac"), partials=False)
    assert len(asked) == 1


def test_a_clip_has_no_partial_results_to_turn_off() -> None:
    with pytest.raises(OptionError, match="partials is false, but a clip has no partial results; leave it out"):
        make_engine().add_request(clip("digits.flac"), streaming=False, decoding={"partials": False})
    with pytest.raises(OptionError, match="partials is 'no'; it must be true or false"):
        make_engine().add_streaming_request(decoding={"partials": "no"})
