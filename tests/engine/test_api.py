"""The engine's calls."""

import contextlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from oasr_backend.engine import ASREngine
from oasr_backend.errors import CheckpointError, ConfigError, EngineFullError
from tests.engine.engines import (
    STREAMS,
    SUBWORDS,
    TINY,
    assert_consistent,
    assert_idle,
    assert_same,
    drain,
    every,
    finals,
    make_engine,
    speech,
    stream,
)


def test_properties(engine: ASREngine) -> None:
    assert (engine.sample_rate, engine.vocab_size, engine.free_streams) == (16000, 50, STREAMS)
    assert (engine.num_running, engine.num_waiting, engine.has_work) == (0, 0, False)


@pytest.mark.parametrize("streaming", [True, False])
def test_one_clip_gives_one_text(engine: ASREngine, streaming: bool) -> None:
    text = engine.transcribe(speech(30000), streaming=streaming)
    assert isinstance(text, str) and text
    assert_idle(engine)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_list_gives_a_list_in_its_own_order(engine: ASREngine, streaming: bool) -> None:
    """More clips than places, the shortest last."""
    clips = [speech(n, n % 3) for n in (40000, 20000, 47000, 9000, 31000, 12000)]
    texts = engine.transcribe(clips, streaming=streaming)
    assert texts == [engine.transcribe(clip, streaming=streaming) for clip in clips]
    assert len(set(texts)) == len(texts)
    assert engine.transcribe([], streaming=streaming) == []
    assert_idle(engine)


def test_transcribe_offline_is_transcribe_without_streaming(engine: ASREngine) -> None:
    clips = [speech(30000), speech(20000)]
    assert engine.transcribe_offline(clips) == engine.transcribe(clips, streaming=False)
    assert engine.transcribe_offline(clips) != engine.transcribe(clips)


def test_everything_about_a_final_output(engine: ASREngine) -> None:
    (final,) = engine.transcribe_outputs([speech(47000)])
    assert final.finished and final.finish_reason == "stop"
    assert final.error is None and final.error_stage is None
    assert final.audio_seconds == 47000 / 16000
    assert final.samples_done == 47000
    assert len(final.tokens) == len(final.scores) == 1
    assert len(final.timestamps) == len(final.tokens[0]) > 5
    assert list(final.timestamps) == sorted(final.timestamps)
    assert all((time / 0.04) == pytest.approx(round(time / 0.04)) for time in final.timestamps)
    assert final.start is not None and final.end is not None
    assert 0 <= final.start <= final.timestamps[0] <= final.timestamps[-1] <= final.end <= final.audio_seconds
    assert final.confidence is not None and 0 < final.confidence <= 1
    assert final.scores[0] < 0
    assert final.nbest_texts is None


def test_mixed_requests_on_one_engine(engine: ASREngine) -> None:
    expected = {streaming: engine.transcribe(speech(40000), streaming=streaming) for streaming in (True, False)}
    ids = {engine.add_request(speech(40000), streaming=streaming): streaming for streaming in (True, False) * 3}
    assert engine.num_waiting == 6
    outputs = engine.run()
    assert all(output.finished for output in outputs)
    texts = {output.request_id: output.text for output in outputs}
    assert texts == {request_id: expected[streaming] for request_id, streaming in ids.items()}
    assert_idle(engine)


def test_partial_texts_grow_and_the_final_holds_them(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request("mine")
    assert request_id == "mine"
    samples = speech(64000)
    outputs = []
    for piece in every(samples, 4000):
        engine.feed_chunk(request_id, piece)
        outputs += engine.step()
    engine.feed_chunk(request_id, [], is_last=True)
    outputs += drain(engine)
    assert {output.request_id for output in outputs} == {"mine"}
    *partials, final = outputs
    assert final.finished and not any(partial.finished for partial in partials)
    assert all(partial.finish_reason is None for partial in partials)
    assert len({partial.text for partial in partials}) > 3
    tokens = [output.tokens[0] for output in outputs]
    for shorter, longer in pairwise(tokens):
        assert longer[: len(shorter)] == shorter
    done = [partial.samples_done for partial in partials]
    assert done == sorted(done) and done[-1] <= len(samples) == final.samples_done
    seconds = [partial.audio_seconds for partial in partials]
    assert seconds == [(index + 1) * 0.25 for index in range(len(partials))]


def test_what_was_fed_is_done_once_no_window_is_ready(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    for fed in range(1, 5):
        engine.feed_chunk(request_id, speech(16000))
        outputs = drain(engine)
        assert outputs[-1].samples_done == fed * 16000
    engine.abort_request(request_id)


def test_clients_of_20_ms_keep_up(engine: ASREngine) -> None:
    """A backlog of small chunks goes a stride a step, as one large chunk would."""
    request_id = engine.add_streaming_request()
    for piece in every(speech(64000), 320):
        engine.feed_chunk(request_id, piece)
    engine.feed_chunk(request_id, [], is_last=True)
    steps = 0
    while engine.num_running or engine.num_waiting:
        engine.step()
        steps += 1
    assert steps <= 64000 // 10240 + 2
    assert_idle(engine)


@pytest.mark.parametrize(
    "convert",
    [lambda x: x, lambda x: x.astype(np.float64), lambda x: x.tolist(), torch.from_numpy, lambda x: x[None]],
    ids=["float32", "float64", "list", "torch", "channel"],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_any_kind_of_mono_audio(engine: ASREngine, convert, streaming: bool) -> None:
    (final,) = engine.transcribe_outputs([convert(speech(20000))], streaming)
    assert_same(final, engine.transcribe_outputs([speech(20000)], streaming)[0])


@pytest.mark.parametrize("streaming", [True, False])
def test_int16_audio_is_the_same_audio(engine: ASREngine, streaming: bool) -> None:
    (final,) = engine.transcribe_outputs([(speech(20000) * 32768).astype(np.int16)], streaming)
    assert_same(final, engine.transcribe_outputs([speech(20000)], streaming)[0])


def test_a_client_may_overwrite_its_buffer(engine: ASREngine) -> None:
    expected = stream(engine, every(speech(32000), 4000))
    request_id = engine.add_streaming_request()
    buffer = np.zeros(4000, dtype=np.float32)
    for piece in every(speech(32000), 4000):
        buffer[:] = piece
        engine.feed_chunk(request_id, buffer)
    buffer[:] = 1
    engine.feed_chunk(request_id, [], is_last=True)
    assert_same(finals(engine.run())[request_id], expected)


def test_ids_are_unique_while_they_live(engine: ASREngine) -> None:
    engine.add_streaming_request("a")
    for add in (
        lambda: engine.add_streaming_request("a"),
        lambda: engine.add_request(speech(400), "a"),
        lambda: engine.add_request(speech(400), "a", streaming=False),
    ):
        with pytest.raises(ValueError, match="'a' is in use"):
            add()
    assert engine.num_waiting == 1
    engine.feed_chunk("a", [], is_last=True)
    assert "a" in finals(engine.run())
    assert engine.add_streaming_request("a") == "a"
    assert engine.add_request(speech(400)) != engine.add_request(speech(400))
    engine.shutdown()
    assert_idle(engine)


@pytest.mark.parametrize("rate", [8000, 44100])
def test_another_sample_rate_is_refused(engine: ASREngine, rate: int) -> None:
    for add in (
        lambda: engine.add_request(speech(400), sample_rate=rate),
        lambda: engine.add_streaming_request(sample_rate=rate),
    ):
        with pytest.raises(ValueError, match=f"{rate} Hz and the model takes 16000 Hz"):
            add()
    engine.add_request(speech(400), sample_rate=16000)
    assert engine.num_waiting == 1


def test_a_bad_clip_in_a_list_leaves_nothing_behind(engine: ASREngine) -> None:
    with pytest.raises(TypeError):
        engine.transcribe([speech(20000), "clip.wav", speech(20000)])
    assert_idle(engine)


def test_a_clip_beyond_the_limit_is_refused_and_streams_are_not() -> None:
    engine = make_engine(max_audio_seconds=1.0)
    with pytest.raises(ValueError, match=r"lasts 1\.5 s and max_audio_seconds is 1"):
        engine.add_request(speech(24000), streaming=False)
    assert engine.transcribe(speech(24000), streaming=True)
    assert engine.transcribe_offline(speech(16000))
    assert_idle(engine)


@pytest.mark.parametrize("chunk_size", [0, 17, -4])
def test_a_chunk_size_the_engine_has_no_room_for_is_refused(engine: ASREngine, chunk_size: int) -> None:
    with pytest.raises(ValueError, match=f"chunk_size is {chunk_size}; this engine serves 1 to 16"):
        engine.add_streaming_request(chunk_size=chunk_size)
    assert_idle(engine)


def test_lower_priorities_are_served_first() -> None:
    engine = make_engine(max_batch_size=1)
    for name, priority in [("late", 5), ("early", -1), ("middle", 0)]:
        engine.add_request(speech(8000), f"stream {name}", priority=priority)
        engine.add_request(speech(8000), f"clip {name}", streaming=False, priority=priority)
    order = [output.request_id for output in engine.run()]
    for kind in ("stream", "clip"):
        assert [name for name in order if name.startswith(kind)] == [f"{kind} {n}" for n in ("early", "middle", "late")]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_priority_that_is_no_number_is_refused(engine: ASREngine, streaming: bool) -> None:
    engine.add_request(speech(8000), streaming=streaming)
    with pytest.raises((TypeError, ValueError)):
        engine.add_request(speech(8000), streaming=streaming, priority="high")  # type: ignore[arg-type]
    assert_consistent(engine)
    assert len(engine.run()) == 1


def test_more_streams_than_places_wait_their_turn(engine: ASREngine) -> None:
    expected = engine.transcribe(speech(20000))
    ids = [engine.add_streaming_request() for _ in range(STREAMS + 2)]
    assert engine.free_streams == 0
    for request_id in ids:
        engine.feed_chunk(request_id, speech(20000), is_last=True)
    engine.step()
    assert (engine.num_running, engine.num_waiting) == (STREAMS, 2)
    assert_consistent(engine)
    texts = {output.request_id: output.text for output in engine.run()}
    assert texts == dict.fromkeys(ids, expected)
    assert_idle(engine)


def guarded(engine: ASREngine, monkeypatch: pytest.MonkeyPatch, limit: int = 200) -> None:
    """Makes a call that would step for ever an error."""
    step, steps = engine.step, iter(range(limit))

    def limited():
        assert next(steps, None) is not None, f"still stepping after {limit} steps"
        return step()

    monkeypatch.setattr(engine, "step", limited)


def test_run_returns_while_idle_streams_hold_all_places(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    live = [engine.add_streaming_request() for _ in range(STREAMS)]
    engine.step()
    waiting = engine.add_request(speech(20000))
    guarded(engine, monkeypatch)
    assert engine.run() == []
    assert (engine.num_running, engine.num_waiting) == (STREAMS, 1)
    engine.feed_chunk(live[0], [], is_last=True)
    assert set(finals(engine.run())) == {live[0], waiting}


def test_a_blocking_call_returns_while_idle_streams_hold_all_places(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(STREAMS):
        engine.add_streaming_request()
    engine.step()
    guarded(engine, monkeypatch)
    with contextlib.suppress(EngineFullError):
        assert engine.transcribe(speech(20000)) == ""
    assert engine.num_waiting == 0
    assert engine.transcribe_offline(speech(20000))


def test_a_blocking_call_does_not_swallow_the_outputs_of_others(engine: ASREngine) -> None:
    expected = engine.transcribe(speech(20000))
    other = engine.add_request(speech(20000))
    engine.transcribe(speech(12000))
    assert [(output.request_id, output.text) for output in engine.run()] == [(other, expected)]
    assert engine.run() == []


def test_step_delivers_what_a_blocking_call_came_across(engine: ASREngine) -> None:
    """One thread steps, another transcribes: every request still gets its final."""
    other = engine.add_request(speech(20000))
    engine.transcribe(speech(12000))
    assert other in finals(engine.step())
    assert engine.step() == []


def test_a_streaming_engine_takes_streams_only() -> None:
    engine = make_engine(service_mode="streaming")
    with pytest.raises(ValueError, match="service_mode='streaming'"):
        engine.add_request(speech(8000), streaming=False)
    with pytest.raises(ValueError, match="service_mode='streaming'"):
        engine.transcribe_offline(speech(8000))
    assert engine.transcribe(speech(20000)) == make_engine().transcribe(speech(20000))
    assert_idle(engine)


def test_an_offline_engine_takes_clips_only_and_has_no_cache() -> None:
    engine = make_engine(service_mode="offline")
    for add in (
        lambda: engine.add_request(speech(8000)),
        lambda: engine.add_streaming_request(),
        lambda: engine.transcribe(speech(8000)),
    ):
        with pytest.raises(ValueError, match="service_mode='offline'"):
            add()
    with pytest.raises(NotImplementedError, match="offline only"):
        engine.feed_chunk("a", speech(8000))
    assert not hasattr(engine._runner, "attention")
    assert engine.free_streams == 0
    assert engine.transcribe_offline(speech(20000)) == make_engine().transcribe_offline(speech(20000))
    request_id = engine.add_request(speech(8000), streaming=False)
    assert engine.abort_request(request_id)
    assert_idle(engine)


def untrained_for_chunks(tmp_path: Path) -> Path:
    for file in TINY.iterdir():
        if file.name != "train.yaml":
            (tmp_path / file.name).symlink_to(file)
    config = (TINY / "train.yaml").read_text(encoding="utf-8")
    assert "use_dynamic_chunk: true" in config
    (tmp_path / "train.yaml").write_text(config.replace("use_dynamic_chunk: true", "use_dynamic_chunk: false"), "utf-8")
    return tmp_path


def test_a_model_not_trained_in_chunks_does_not_stream(tmp_path: Path) -> None:
    path = untrained_for_chunks(tmp_path)
    with pytest.raises(ConfigError, match="cannot stream; serve it with service_mode='offline'"):
        make_engine(path, service_mode="streaming")
    assert make_engine(path, service_mode="offline").transcribe_offline(speech(20000))


def test_a_model_not_trained_in_chunks_refuses_streams_in_mixed_mode(tmp_path: Path) -> None:
    engine = make_engine(untrained_for_chunks(tmp_path))
    assert engine.transcribe_offline(speech(20000))
    for add in (lambda: engine.add_request(speech(8000)), lambda: engine.add_streaming_request()):
        with pytest.raises(ValueError, match="trained without chunks"):
            add()
    assert engine.free_streams == 0


def test_construction_fails_with_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        make_engine(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="'ctc_wfst' is not supported"):
        make_engine(decode_method="ctc_wfst")
    with pytest.raises(ConfigError, match="needs 8 pages for each of 4 streams"):
        make_engine(max_num_blocks=20)


def test_a_warm_up_leaves_no_trace(engine: ASREngine) -> None:
    expected = make_engine().transcribe_outputs([speech(30000)])[0]
    engine.warm_up()
    snapshot = engine.metrics_snapshot()
    assert not snapshot.counters and not snapshot.samples
    assert_idle(engine)
    assert_same(engine.transcribe_outputs([speech(30000)])[0], expected)


@pytest.mark.parametrize("mode", ["streaming", "offline"])
def test_a_pinned_engine_warms_up_what_it_serves(mode: str) -> None:
    engine = make_engine(service_mode=mode, max_batch_size=2)
    engine.warm_up()
    assert_idle(engine)


def test_a_subword_model_gives_words() -> None:
    engine = make_engine(SUBWORDS)
    (final,) = engine.transcribe_outputs([speech(75000)])
    assert " " in final.text and "▁" not in final.text and final.text == final.text.strip()


def test_shutdown_ends_everything_and_may_be_called_twice(engine: ASREngine) -> None:
    engine.add_request(speech(30000))
    engine.add_request(speech(30000), streaming=False)
    for _ in range(STREAMS):
        engine.feed_chunk(engine.add_streaming_request(), speech(30000))
    engine.step()
    engine.step()
    engine.shutdown()
    assert_idle(engine)
    engine.shutdown()
    assert engine.run() == []
