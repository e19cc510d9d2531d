"""Clips whose waveforms are checked aside, while the engine steps."""

import gc
import threading
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.errors import ConfigError
from tests.engine.engines import (
    assert_consistent,
    assert_idle,
    assert_same,
    drain,
    every,
    failing_once,
    finals,
    make_engine,
    speech,
    stream,
)

RATE = 16000
# Far more than anything here takes on a busy machine.
PATIENCE_S = 120.0
CLIPS = [(30000, 2), (0, 0), (399, 1), (47000, 0), (9000, 1), (20000, 2)]


def preparing(**options: object) -> ASREngine:
    return make_engine(**{"overlap_admit": True, "gc_freeze": False, **options})


@pytest.fixture
def engine() -> Iterator[ASREngine]:
    engine = preparing()
    yield engine
    engine.shutdown()


@cache
def reference() -> ASREngine:
    """An engine that prepares at the call."""
    return make_engine(gc_freeze=False)


@cache
def alone(samples: int, utterance: int = 2) -> RequestOutput:
    return reference().transcribe_outputs([speech(samples, utterance)], streaming=False)[0]


class Gate:
    """Holds the preparation of everything until it is opened."""

    def __init__(self, prepare: Callable[[object], np.ndarray]):
        self._prepare = prepare
        self._opened = threading.Event()
        self.entered = threading.Event()

    def __call__(self, audio: object) -> np.ndarray:
        self.entered.set()
        assert self._opened.wait(PATIENCE_S)
        return self._prepare(audio)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def gate(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    preparation = engine._preparation
    gate = Gate(preparation._prepare)
    monkeypatch.setattr(preparation, "_prepare", gate)
    yield gate
    gate.open()


# the same outputs


@pytest.mark.parametrize("options", [{}, {"service_mode": "offline"}, {"enable_sequence_packing": True}], ids=str)
def test_outputs_equal_those_of_clips_prepared_at_the_call(options: dict[str, object]) -> None:
    engine = preparing(**options)
    outputs = engine.transcribe_outputs([speech(*part) for part in CLIPS], streaming=False)
    for output, part in zip(outputs, CLIPS, strict=True):
        assert_same(output, alone(*part))
        assert output.error is None
    assert_idle(engine)
    engine.shutdown()


@pytest.mark.parametrize("way", ["step", "run", "blocking", "text"])
def test_every_way_to_step_drives_it_to_the_end(engine: ASREngine, way: str) -> None:
    samples, expected = speech(20000), alone(20000)
    if way == "blocking":
        assert_same(engine.transcribe_outputs([samples], streaming=False)[0], expected)
    elif way == "text":
        assert engine.transcribe_offline(samples) == expected.text
        assert engine.transcribe([samples, samples], streaming=False) == [expected.text] * 2
    else:
        request_id = engine.add_request(samples, streaming=False)
        assert engine.has_work
        outputs = engine.run() if way == "run" else drain(engine)
        assert_same(finals(outputs)[request_id], expected)
    assert_idle(engine)


def test_clips_are_answered_in_order_of_admission() -> None:
    engine = preparing(max_batch_size=1)
    names = [engine.add_request(speech(8000), f"{index}", streaming=False) for index in range(6)]
    assert [output.request_id for output in engine.run()] == names
    engine.shutdown()


def test_priorities_are_kept(gate: Gate, engine: ASREngine) -> None:
    for priority in (1, 0, -1):
        engine.add_request(speech(8000), str(priority), streaming=False, priority=priority)
    gate.open()
    while engine._preparation._done.qsize() < 3:
        engine._preparation.wait(0.01)
    assert [output.request_id for output in engine.run()] == ["-1", "0", "1"]


def test_options_and_kinds_of_audio_are_honoured(engine: ASREngine) -> None:
    int16 = (speech(20000) * 32768).astype(np.int16)
    (output,) = engine.transcribe_outputs([int16], streaming=False, decoding={"word_timestamps": True})
    assert_same(output, alone(20000))
    assert output.words


def test_a_blocking_call_does_not_swallow_the_outputs_of_others(engine: ASREngine) -> None:
    other = engine.add_request(speech(20000), streaming=False)
    engine.transcribe_offline(speech(9000))
    assert_same(finals(engine.run())[other], alone(20000))


def test_clips_are_counted_once_they_are_taken(engine: ASREngine) -> None:
    engine.transcribe_offline([speech(16000), speech(8000)])
    counters = engine.metrics_snapshot().counters
    assert counters["requests_admitted:offline"] == 2
    assert counters["engine_audio_seconds:offline"] == 1.5


# bad audio

BAD = {
    "nan": np.array([0.0, np.nan], dtype=np.float32),
    "int16 as float": np.full(400, 1000.0, dtype=np.float32),
    "stereo": np.zeros((2, 400), dtype=np.float32),
    "int32": np.zeros(400, dtype=np.int32),
    "path": "clip.wav",
    "none": None,
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_audio_comes_back_as_an_error_that_says_what_is_wrong(engine: ASREngine, fault: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        reference().add_request(BAD[fault], streaming=False)
    good = engine.add_request(speech(20000), streaming=False)
    bad = engine.add_request(BAD[fault], "bad", streaming=False)
    late = engine.add_request(speech(9000), streaming=False)
    assert bad == "bad"
    ended = finals(drain(engine))
    assert set(ended) == {good, bad, late}
    output = ended["bad"]
    assert (output.finished, output.finish_reason, output.error_stage) == (True, "error", "offline_prep")
    assert output.error == str(refused.value)
    assert (output.text, output.tokens) == ("", ((),))
    assert_same(ended[good], alone(20000))
    assert_same(ended[late], alone(9000))
    counters = engine.metrics_snapshot().counters
    assert counters["requests_failed:offline_prep"] == 1
    assert counters["requests_admitted:offline"] == 3
    assert_idle(engine)


def test_a_clip_that_is_too_long_comes_back_as_an_error() -> None:
    engine = preparing(max_audio_seconds=1.0)
    (output,) = engine.transcribe_outputs([speech(24000)], streaming=False)
    assert (output.finish_reason, output.error_stage) == ("error", "offline_prep")
    assert output.error == "the clip lasts 1.5 s and max_audio_seconds is 1; stream it, cut it, or set long_form"
    assert_idle(engine)
    engine.shutdown()


def test_in_a_blocking_call_bad_audio_takes_its_place_among_the_outputs(engine: ASREngine) -> None:
    first, bad, last = engine.transcribe_outputs([speech(20000), BAD["nan"], speech(9000)], streaming=False)
    assert_same(first, alone(20000))
    assert bad.error_stage == "offline_prep"
    assert_same(last, alone(9000))
    assert engine.transcribe_offline([BAD["path"], speech(9000)]) == ["", alone(9000).text]
    assert_idle(engine)


@pytest.mark.parametrize("error", [RuntimeError("secret detail"), MemoryError("secret detail"), KeyError("secret")])
def test_an_error_that_is_not_about_the_audio_keeps_its_message_to_the_log(
    engine: ASREngine, monkeypatch: pytest.MonkeyPatch, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    preparation = engine._preparation
    monkeypatch.setattr(preparation, "_prepare", failing_once(preparation._prepare, error))
    first, second = engine.transcribe_outputs([speech(9000)] * 2, streaming=False)
    assert (first.finish_reason, first.error_stage) == ("error", "offline_prep")
    assert first.error == f"{type(error).__name__} in offline_prep"
    assert "secret" in caplog.text
    assert_same(second, alone(9000))
    assert engine.metrics_snapshot().counters["requests_failed:offline_prep"] == 1
    assert_idle(engine)


@pytest.mark.parametrize(
    "arguments",
    [{"sample_rate": 8000}, {"decoding": {"beam": 1}}, {"decoding": {"n_best": 3}}, {"priority": "high"}],
    ids=str,
)
def test_what_is_wrong_with_the_arguments_is_said_at_the_call(engine: ASREngine, arguments: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        engine.add_request(speech(9000), streaming=False, **arguments)  # type: ignore[arg-type]
    assert_idle(engine)


def test_an_engine_without_clips_has_nothing_to_prepare() -> None:
    with pytest.raises(ConfigError, match="overlap_admit is true but service_mode 'streaming' serves no offline clips"):
        preparing(service_mode="streaming")


# while it is being prepared


def test_what_is_being_prepared_waits(gate: Gate, engine: ASREngine) -> None:
    for count in range(1, 4):
        engine.add_request(speech(20000), streaming=False)
        assert (engine.num_waiting, engine.num_running, engine.has_work) == (count, 0, True)
    assert engine.metrics_snapshot().gauges["engine_waiting"] == 3
    assert engine.step() == [] and engine.num_waiting == 3
    gate.open()
    assert len(drain(engine)) == 3
    assert_idle(engine)


def test_slow_preparation_holds_no_stream_up(gate: Gate, engine: ASREngine) -> None:
    """A stream and an attached clip go through while a clip's preparation hangs; then the clip does."""
    samples = speech(40000)
    expected = stream(reference(), [samples])
    clip = engine.add_request(speech(20000), streaming=False)
    assert gate.entered.wait(PATIENCE_S)
    attached = engine.add_request(samples)
    live = engine.add_streaming_request()
    outputs = []
    for piece in every(samples, 8000):
        engine.feed_chunk(live, piece)
        outputs += engine.step()
    engine.feed_chunk(live, [], is_last=True)
    for _ in range(20):
        outputs += engine.step()
    ended = finals(outputs)
    assert set(ended) == {attached, live}
    for output in ended.values():
        assert_same(output, expected)
    assert engine.num_waiting == 1
    gate.open()
    assert_same(finals(drain(engine))[clip], alone(20000))
    assert_idle(engine)


def test_slow_preparation_holds_no_prepared_clip_up(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = engine.add_request(speech(20000), streaming=False)
    outputs: list[RequestOutput] = []
    while not outputs:
        outputs += engine.step()
    gate = Gate(engine._preparation._prepare)
    monkeypatch.setattr(engine._preparation, "_prepare", gate)
    slow = engine.add_request(speech(9000), streaming=False)
    assert [output.request_id for output in outputs] == [ready]
    assert engine.step() == []
    gate.open()
    assert list(finals(drain(engine))) == [slow]


def test_other_calls_do_not_wait_for_preparation(gate: Gate, engine: ASREngine) -> None:
    engine.add_request(speech(20000), "slow", streaming=False)
    assert gate.entered.wait(PATIENCE_S)
    assert engine.num_running == 0 and engine.free_streams == engine.config.max_batch_size
    live = engine.add_streaming_request()
    engine.feed_chunk(live, speech(4000))
    engine.step()
    assert engine.num_running == 1
    assert engine.abort_request(live)
    assert engine.metrics_snapshot().gauges["engine_waiting"] == 1
    gate.open()
    assert list(finals(drain(engine))) == ["slow"]


def test_streams_are_not_prepared_aside(gate: Gate, engine: ASREngine) -> None:
    """The gate stays shut: nothing of a stream passes it, and what is wrong with its audio is said at the call."""
    with pytest.raises(ValueError, match="NaN"):
        engine.add_request(BAD["nan"])
    with pytest.raises(TypeError, match="path"):
        engine.transcribe("clip.wav")
    assert engine.transcribe(speech(20000)) == reference().transcribe(speech(20000))
    assert not gate.entered.is_set()
    assert_idle(engine)


def test_what_is_being_prepared_can_be_aborted(gate: Gate, engine: ASREngine) -> None:
    doomed = [engine.add_request(speech(20000), streaming=False) for _ in range(3)]
    kept = engine.add_request(speech(9000), streaming=False)
    for request_id in doomed:
        assert engine.abort_request(request_id) is True
        assert engine.abort_request(request_id) is False
    assert engine.num_waiting == 1
    assert engine.metrics_snapshot().counters["requests_cancelled:offline"] == 3
    gate.open()
    ended = finals(drain(engine))
    assert set(ended) == {kept}
    assert_same(ended[kept], alone(9000))
    assert_idle(engine)


def test_aborted_while_everything_is_being_prepared_nothing_is_left(gate: Gate, engine: ASREngine) -> None:
    request_id = engine.add_request(speech(20000), streaming=False)
    assert gate.entered.wait(PATIENCE_S)
    assert engine.abort_request(request_id)
    assert_idle(engine)
    gate.open()
    assert engine.run() == []
    # What comes later passes behind it.
    assert_same(engine.transcribe_outputs([speech(9000)], streaming=False)[0], alone(9000))
    assert_idle(engine)


def test_bad_audio_that_was_aborted_says_nothing(gate: Gate, engine: ASREngine) -> None:
    engine.add_request(BAD["nan"], "bad", streaming=False)
    engine.abort_request("bad")
    gate.open()
    engine.add_request(speech(9000), "good", streaming=False)
    assert list(finals(drain(engine))) == ["good"]
    assert "requests_failed:offline_prep" not in engine.metrics_snapshot().counters


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("bad", [False, True])
def test_an_id_can_be_used_again_after_an_abort_in_preparation(
    gate: Gate, engine: ASREngine, bad: bool, streaming: bool
) -> None:
    """Its old waveform, still on its way, reaches nobody."""
    engine.add_request(BAD["nan"] if bad else speech(30000, 1), "mine", streaming=False)
    assert gate.entered.wait(PATIENCE_S)
    assert engine.abort_request("mine")
    assert engine.add_request(speech(20000), "mine", streaming=streaming) == "mine"
    gate.open()
    expected = stream(reference(), [speech(20000)]) if streaming else alone(20000)
    assert_same(finals(drain(engine))["mine"], expected)
    assert_idle(engine)


def test_an_id_is_taken_while_its_clip_is_being_prepared(gate: Gate, engine: ASREngine) -> None:
    engine.add_request(speech(20000), "mine", streaming=False)
    for add in (
        lambda: engine.add_request(speech(400), "mine", streaming=False),
        lambda: engine.add_request(speech(400), "mine"),
        lambda: engine.add_streaming_request("mine"),
    ):
        with pytest.raises(ValueError, match="'mine' is in use"):
            add()
    assert engine.num_waiting == 1
    with pytest.raises(KeyError, match="no stream 'mine'"):
        engine.feed_chunk("mine", speech(400))
    gate.open()
    assert_same(finals(drain(engine))["mine"], alone(20000))
    assert_idle(engine)


@pytest.mark.parametrize("kind", ["waiting stream", "running stream", "clip"])
def test_the_id_of_what_lives_is_refused_at_the_call(engine: ASREngine, kind: str) -> None:
    if kind == "clip":
        engine.add_request(speech(9000), "mine", streaming=False)
        while len(engine._preparation):
            engine._preparation.wait(0.01)
            engine._admit_prepared()
    else:
        engine.add_streaming_request("mine")
    if kind == "running stream":
        engine.step()
    with pytest.raises(ValueError, match="'mine' is in use"):
        engine.add_request(speech(20000), "mine", streaming=False)
    assert_consistent(engine)
    assert engine.abort_request("mine") and not engine.abort_request("mine")
    assert drain(engine) == []
    assert_idle(engine)


def test_a_bad_request_does_not_speak_in_the_name_of_a_live_stream(engine: ASREngine) -> None:
    """Whatever comes of a second request with a stream's id, the stream hears of its own end alone."""
    samples = speech(40000)
    expected = stream(reference(), [samples])
    engine.add_streaming_request("mine")
    engine.feed_chunk("mine", samples[:20000])
    outputs = drain(engine)
    with pytest.raises(ValueError, match="'mine' is in use"):
        engine.add_request(BAD["nan"], "mine", streaming=False)
    outputs += drain(engine)
    assert "mine" not in finals(outputs)
    engine.feed_chunk("mine", samples[20000:], is_last=True)
    assert_same(finals([*outputs, *drain(engine)])["mine"], expected)
    assert_idle(engine)


# recordings


def test_recordings_are_prepared_aside_too() -> None:
    options = {"long_form": True, "long_form_window_seconds": 1.0, "long_form_overlap_seconds": 0.25}
    engine, plain = preparing(**options), make_engine(gc_freeze=False, **options)
    clips = [speech(5 * RATE), speech(9000), speech(3 * RATE, 1)]
    outputs = engine.transcribe_outputs([clips[0], BAD["nan"], *clips[1:]], streaming=False)
    assert outputs.pop(1).error_stage == "offline_prep"
    for output, samples in zip(outputs, clips, strict=True):
        assert_same(output, plain.transcribe_outputs([samples], streaming=False)[0])
    counters = engine.metrics_snapshot().counters
    assert counters["requests_admitted:offline"] == 4
    assert counters["engine_audio_seconds:offline"] == sum(map(len, clips)) / RATE
    assert_idle(engine)
    engine.shutdown()


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_recording_can_be_aborted_before_and_after_its_preparation(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = preparing(long_form=True, long_form_window_seconds=1.0, long_form_overlap_seconds=0.25)
    gate = Gate(engine._preparation._prepare)
    monkeypatch.setattr(engine._preparation, "_prepare", gate)
    engine.add_request(speech(10 * RATE), "mine", streaming=False)
    if steps:
        gate.open()
    taken = 0
    while taken < steps:
        assert engine.step() == []
        taken += bool(engine._recordings)
    assert engine.abort_request("mine")
    assert_idle(engine)
    gate.open()
    assert drain(engine) == []
    assert engine.transcribe_offline(speech(2 * RATE))
    assert_idle(engine)
    engine.shutdown()


# the end


def test_shutdown_ends_the_thread_and_may_be_called_twice() -> None:
    engine = preparing()
    thread = engine._preparation._thread
    assert thread.is_alive() and thread.daemon
    for _ in range(4):
        engine.add_request(speech(20000), streaming=False)
    engine.shutdown()
    assert not thread.is_alive()
    assert_idle(engine)
    engine.shutdown()
    assert drain(engine) == []


def test_a_call_after_shutdown_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is served, or says that it cannot be."""
    engine = preparing()
    engine.shutdown()
    preparation, turns = engine._preparation, iter(range(200))
    wait = preparation.wait

    def limited(timeout_s: float) -> None:
        assert next(turns, None) is not None, "still waiting for a thread that has ended"
        wait(timeout_s)

    monkeypatch.setattr(preparation, "wait", limited)
    try:
        text = engine.transcribe_offline(speech(9000))
    except (RuntimeError, ValueError):
        return
    assert text == alone(9000).text


def test_an_engine_that_nobody_uses_ends_its_thread() -> None:
    engine = preparing()
    thread = engine._preparation._thread
    engine.transcribe_offline(speech(9000))
    del engine
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_without_the_option_there_is_no_thread() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    engine = make_engine(gc_freeze=False)
    engine.transcribe_offline(speech(9000))
    assert engine._preparation is None
    new = [thread.name for thread in threading.enumerate() if thread.ident not in before]
    assert "oasr-preparation" not in new


def test_many_threads_admit_and_abort_while_one_steps(engine: ASREngine) -> None:
    """Every clip that was not aborted is answered once, as if alone."""
    kept: set[str] = set()
    errors: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for turn in range(6):
                name = f"{number}-{turn}"
                engine.add_request(speech(9000), name, streaming=False)
                # Too late for an abort, it is answered.
                if turn % 3 != 1 or not engine.abort_request(name):
                    kept.add(name)
                assert engine.num_waiting >= 0
        except BaseException as error:
            errors.append(error)

    clients = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(6)]
    for thread in clients:
        thread.start()
    outputs = []
    while any(thread.is_alive() for thread in clients) or engine.has_work:
        outputs += engine.step()
    assert errors == []
    ended = finals(outputs)
    assert set(ended) == kept
    for output in ended.values():
        assert_same(output, alone(9000))
    assert_idle(engine)
