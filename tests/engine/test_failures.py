"""An error ends those it struck and nobody else, and everything comes back."""

from collections.abc import Callable

import pytest
import torch

from oasr_backend.engine import ASREngine
from tests.engine.engines import (
    RecordingStrategy,
    assert_idle,
    assert_same,
    drain,
    failing_once,
    finals,
    make_engine,
    speech,
    stream,
)


def fail_forward(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = engine._runner._model
    monkeypatch.setattr(model, "encode_chunk", failing_once(model.encode_chunk, RuntimeError("secret detail")))


def fail_features(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = engine._inputs.streams
    assert streams is not None
    monkeypatch.setattr(streams, "append", failing_once(streams.append, RuntimeError("secret detail")))


def fail_decode(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = engine._streaming._outputs._strategy
    monkeypatch.setattr(strategy, "advance", failing_once(strategy.advance, RuntimeError("secret detail")))


@pytest.mark.parametrize(
    ("fail", "stage"),
    [
        (fail_forward, "streaming_forward"),
        (fail_features, "streaming_features"),
        (fail_decode, "streaming_decode"),
    ],
)
def test_a_failing_step_ends_its_cohort_only(
    engine: ASREngine,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[ASREngine, pytest.MonkeyPatch], None],
    stage: str,
) -> None:
    samples = speech(40000)
    expected = stream(engine, [samples])
    # The bystander waits for audio while the others go on.
    bystander = engine.add_streaming_request()
    engine.feed_chunk(bystander, samples[:30000])
    drain(engine)
    cohort = [engine.add_request(samples) for _ in range(2)]
    fail(engine, monkeypatch)
    ended = finals(drain(engine))
    assert set(ended) == set(cohort)
    for output in ended.values():
        assert (output.finish_reason, output.error_stage, output.finished) == ("error", stage, True)
        assert output.error is not None and "secret detail" not in output.error
        assert output.samples_done == len(samples)
    assert engine.metrics_snapshot().counters[f"requests_failed:{stage}"] == 2
    assert engine.metrics_snapshot().gauges["slots_free"] == 3
    engine.feed_chunk(bystander, samples[30000:], is_last=True)
    assert_same(finals(drain(engine))[bystander], expected)
    assert_same(stream(engine, [samples]), expected)
    assert_idle(engine)


def test_streams_of_another_chunk_size_outlive_a_failing_forward(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = speech(40000)
    expected = stream(engine, [samples], chunk_size=16)
    small, large = engine.add_streaming_request(chunk_size=8), engine.add_streaming_request(chunk_size=16)
    for request_id in (small, large):
        engine.feed_chunk(request_id, samples, is_last=True)
    fail_forward(engine, monkeypatch)
    ended = finals(drain(engine))
    assert ended[small].error_stage == "streaming_forward"
    assert_same(ended[large], expected)
    assert_idle(engine)


def test_sessions_of_failed_streams_are_closed(recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(decode_method="recording")
    fail_forward(engine, monkeypatch)
    for _ in range(3):
        engine.add_request(speech(20000))
    assert all(output.finish_reason == "error" for output in engine.run())
    assert [session.closed for session in recorder.sessions] == [1, 1, 1]
    assert_idle(engine)


def test_a_failing_close_still_returns_slot_and_pages(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(decode_method="recording")
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(30000))
    engine.step()
    engine.step()
    monkeypatch.setattr(recorder, "close", failing_once(recorder.close, RuntimeError("close failed")))
    with pytest.raises(RuntimeError, match="close failed"):
        engine.abort_request(request_id)
    assert_idle(engine)


def test_a_stream_that_cannot_start_fails_alone(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = speech(40000)
    expected = stream(engine, [samples])
    strategy = engine._streaming._outputs._strategy
    monkeypatch.setattr(strategy, "open", failing_once(strategy.open, RuntimeError("no session left")))
    first, second = engine.add_request(samples), engine.add_request(samples)
    ended = finals(drain(engine))
    assert (ended[first].finish_reason, ended[first].text) == ("error", "")
    assert_same(ended[second], expected)
    assert_idle(engine)


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_clip_that_fails_in_a_batch_fails_alone(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch, culprit: int
) -> None:
    clips = [speech(n) for n in (20000, 30000, 40000)]
    expected = [engine.transcribe_outputs([clip], streaming=False)[0] for clip in clips]
    model = engine._runner._model
    encode = model.encode_clips
    poison = engine._inputs.clips([clips[culprit]])[1][0]
    widths = []

    def fragile(features: torch.Tensor, lengths: torch.Tensor, *rest: int) -> torch.Tensor:
        widths.append(len(lengths))
        if poison in lengths.tolist():
            raise RuntimeError("this clip")
        return encode(features, lengths, *rest)

    monkeypatch.setattr(model, "encode_clips", fragile)
    outputs = engine.transcribe_outputs(clips, streaming=False)
    assert widths == [3, 1, 1, 1]
    for index, (output, good) in enumerate(zip(outputs, expected, strict=True)):
        if index == culprit:
            assert (output.finish_reason, output.error_stage, output.text) == ("error", "offline_forward", "")
        else:
            assert_same(output, good)
    assert engine.metrics_snapshot().counters["requests_failed:offline_forward"] == 1
    assert_idle(engine)


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("no memory")], ids=["host", "device"])
def test_a_batch_for_which_memory_ran_out_is_not_tried_again(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    model = engine._runner._model
    monkeypatch.setattr(model, "encode_clips", failing_once(model.encode_clips, error))
    outputs = engine.transcribe_outputs([speech(20000)] * 3, streaming=False)
    assert [(output.finish_reason, output.error_stage) for output in outputs] == [("error", "offline_oom")] * 3
    assert engine.transcribe_offline(speech(20000))
    assert_idle(engine)
