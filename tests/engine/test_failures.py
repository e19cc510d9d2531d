"""An error ends those it struck and nobody else, and everything comes back."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
import torch

from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine.packing import PackedRow
from oasr_backend.engine.request import ErrorStage
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

SECRET = "secret detail"


def fail_forward(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    model = engine._runner._model
    monkeypatch.setattr(model, "encode_chunk", failing_once(model.encode_chunk, RuntimeError("secret detail")))


def fail_features(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = engine._inputs.streams
    assert streams is not None
    monkeypatch.setattr(streams, "append", failing_once(streams.append, RuntimeError("secret detail")))


def fail_decode(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = engine._outputs._decoders.get(None)
    monkeypatch.setattr(strategy, "advance", failing_once(strategy.advance, RuntimeError("secret detail")))


@pytest.mark.parametrize(
    ("fail", "stage"),
    [
        (fail_forward, "streaming_forward"),
        (fail_features, "streaming_features"),
        (fail_decode, "decode_step"),
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
    assert engine.metrics_snapshot().gauges["engine_decode_slots_in_use"] == 1
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
    strategy = engine._outputs._decoders.get(None)
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


# every stage of a stream, at its first, a middle and its last step, beside streams and clips that must not notice


@dataclass
class Fault:
    """A method of the engine's parts that raises when it is called for the `number`-th time for certain requests."""

    owner: str
    method: str
    stage: ErrorStage
    requests: Callable[[ASREngine, tuple[Any, ...]], set[str]]
    """Ids of the requests that a call is for."""


def parts(engine: ASREngine) -> dict[str, object]:
    return {
        "inputs": engine._inputs,
        "runner": engine._runner,
        "runtime": engine._runner.streams,
        "outputs": engine._outputs,
    }


def of_requests(engine: ASREngine, arguments: tuple[Any, ...]) -> set[str]:
    return {request.request_id for request in arguments[0]}


def of_request(engine: ASREngine, arguments: tuple[Any, ...]) -> set[str]:
    return {arguments[0].request_id}


STREAMING_FAULTS = {
    "features": Fault("inputs", "ingest", "streaming_features", of_requests),
    "windows": Fault("inputs", "windows", "streaming_forward", of_requests),
    "pages": Fault("runtime", "reserve", "streaming_forward", of_request),
    "forward": Fault("runner", "forward_chunks", "streaming_forward", of_requests),
    "decode": Fault("outputs", "advance", "decode_step", of_requests),
    "rendering": Fault("outputs", "stream_output", "decode_step", of_request),
}


@dataclass
class Watch:
    """How often a fault's method was called for a request, and whom the call that raised was for."""

    calls: int = 0
    struck: set[str] = field(default_factory=set)


def watch(
    engine: ASREngine,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    victim: str,
    number: int | None = None,
    error: Exception | None = None,
) -> Watch:
    """Counts the calls for `victim` and makes the `number`-th raise."""
    owner = parts(engine)[fault.owner]
    call = getattr(owner, fault.method)
    seen = Watch()

    def wrapped(*arguments: Any, **named: Any) -> object:
        ids = fault.requests(engine, arguments)
        if victim in ids:
            seen.calls += 1
            if seen.calls - 1 == number:
                seen.struck = ids
                raise error or RuntimeError(SECRET)
        return call(*arguments, **named)

    monkeypatch.setattr(owner, fault.method, wrapped)
    return seen


VICTIM, FELLOW, SMALL, BYSTANDER = "victim", "fellow", "small", "bystander"


def scene(engine: ASREngine) -> dict[str, RequestOutput]:
    """Two streams and one of smaller chunks step together, a clip beside every step; another waits for audio."""
    samples = speech(60000, 1)
    engine.add_streaming_request(BYSTANDER)
    engine.feed_chunk(BYSTANDER, samples[:30000])
    outputs = drain(engine)
    engine.add_request(speech(60000), VICTIM)
    engine.add_request(speech(50000), FELLOW)
    engine.add_streaming_request(SMALL, chunk_size=8)
    engine.feed_chunk(SMALL, speech(40000, 0), is_last=True)
    for step in range(6):
        engine.add_request(speech(9000 + 1000 * step), f"clip {step}", streaming=False)
        outputs += engine.step()
    outputs += drain(engine)
    assert engine.num_running == 1
    engine.feed_chunk(BYSTANDER, samples[30000:], is_last=True)
    return finals([*outputs, *drain(engine)])


@cache
def undisturbed() -> tuple[dict[str, RequestOutput], dict[str, int]]:
    """What everybody hears when nothing fails, and how often each fault's method is called for the victim."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        engine = make_engine(gc_freeze=False)
        watches = {name: watch(engine, monkeypatch, fault, VICTIM) for name, fault in STREAMING_FAULTS.items()}
        ended = scene(engine)
        assert_idle(engine)
        return ended, {name: seen.calls for name, seen in watches.items()}


def assert_failed(output: RequestOutput, stage: str, kind: str = "RuntimeError") -> None:
    assert (output.finished, output.finish_reason, output.error_stage) == (True, "error", stage)
    assert (output.text, output.tokens, output.timestamps, output.words) == ("", ((),), (), None)
    assert output.error == f"{kind} in {stage}"


def assert_serves(engine: ASREngine) -> None:
    """As if nothing had happened."""
    assert_idle(engine)
    expected, _ = undisturbed()
    assert engine.transcribe(speech(60000)) == expected[VICTIM].text
    assert engine.transcribe_offline(speech(9000)) == expected["clip 0"].text
    assert_idle(engine)


@pytest.mark.parametrize("moment", ["first", "middle", "last"])
@pytest.mark.parametrize("name", STREAMING_FAULTS)
def test_a_fault_in_a_stream_ends_whom_it_struck_and_nobody_else_hears_of_it(
    name: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, calls = undisturbed()
    fault, count = STREAMING_FAULTS[name], calls[name]
    assert count >= 4
    engine = make_engine(gc_freeze=False)
    seen = watch(engine, monkeypatch, fault, VICTIM, {"first": 0, "middle": count // 2, "last": count - 1}[moment])
    ended = scene(engine)
    struck = seen.struck
    if name == "pages":
        # Pages are reserved stream by stream for the whole cohort of equal chunks.
        struck = {VICTIM, FELLOW} if moment != "last" else {VICTIM}
    assert VICTIM in struck and BYSTANDER not in struck
    if name == "forward" and moment != "last":
        assert struck == {VICTIM, FELLOW}
    assert set(ended) == set(expected)
    for request_id, output in ended.items():
        if request_id in struck:
            assert_failed(output, fault.stage)
            assert output.samples_done == {VICTIM: 60000, FELLOW: 50000, SMALL: 40000}[request_id]
        else:
            assert_same(output, expected[request_id])
    counters = engine.metrics_snapshot().counters
    assert {label: value for label, value in counters.items() if label.startswith("requests_failed")} == {
        f"requests_failed:{fault.stage}": len(struck)
    }
    assert_serves(engine)


@pytest.mark.parametrize("error", [MemoryError(SECRET), torch.OutOfMemoryError(SECRET)], ids=["host", "device"])
@pytest.mark.parametrize("name", ["features", "forward", "decode"])
def test_without_memory_a_stream_fails_in_the_stage_it_was_in(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(gc_freeze=False)
    watch(engine, monkeypatch, STREAMING_FAULTS[name], VICTIM, 1, error)
    engine.add_request(speech(60000), VICTIM)
    clip = engine.add_request(speech(9000), streaming=False)
    ended = finals(drain(engine))
    assert_failed(ended[VICTIM], STREAMING_FAULTS[name].stage, type(error).__name__)
    assert_same(ended[clip], undisturbed()[0]["clip 0"])
    assert_serves(engine)


@pytest.mark.parametrize("part", ["allocate", "open", "reset"])
def test_of_streams_that_start_together_only_the_one_that_cannot_fails(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = undisturbed()
    engine = make_engine(gc_freeze=False)
    owner = {"allocate": engine._runner.runtime, "open": engine._outputs, "reset": engine._inputs.streams}[part]
    monkeypatch.setattr(owner, part, failing_once(getattr(owner, part), RuntimeError(SECRET)))
    engine.add_request(speech(50000), FELLOW)
    engine.add_request(speech(60000), VICTIM)
    ended = finals(drain(engine))
    # The shorter one starts first.
    assert_failed(ended[FELLOW], "streaming_features")
    assert_same(ended[VICTIM], expected[VICTIM])
    assert engine.metrics_snapshot().counters["requests_failed:streaming_features"] == 1
    assert_serves(engine)


@pytest.mark.parametrize("part", ["best", "piece"])
def test_a_text_that_cannot_be_made_ends_its_stream_alone(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = undisturbed()
    engine = make_engine(gc_freeze=False)
    owner = engine._outputs._decoders.get(None) if part == "best" else engine._outputs._tokenizer
    monkeypatch.setattr(owner, part, failing_once(getattr(owner, part), RuntimeError(SECRET)))
    for request_id, samples in ((VICTIM, 60000), (FELLOW, 50000)):
        engine.add_request(speech(samples), request_id)
    ended = finals(drain(engine))
    failed = [request_id for request_id, output in ended.items() if output.finish_reason == "error"]
    assert len(failed) == 1 and len(ended) == 2
    assert_failed(ended.pop(failed[0]), "decode_step")
    ((request_id, output),) = ended.items()
    assert_same(output, expected[request_id])
    assert_serves(engine)


def test_a_stream_at_its_page_ceiling_whose_final_text_fails_does_not_touch_its_cohort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = make_engine(max_blocks_per_seq=3, gc_freeze=False)
    expected = {n: stream(engine, [speech(n)]) for n in (20000, 28000)}
    render = engine._outputs.stream_output

    def fragile(request: Any, reason: Any = None) -> RequestOutput:
        if reason == "length":
            raise RuntimeError(SECRET)
        return render(request, reason)

    monkeypatch.setattr(engine._outputs, "stream_output", fragile)
    # In the step in which the long one meets its ceiling the others have a window, too.
    engine.add_request(speech(75000), VICTIM)
    outputs = engine.step() + engine.step()
    fellows = {engine.add_request(speech(n)): n for n in expected}
    outputs += drain(engine)
    ended = finals(outputs)
    assert_failed(ended[VICTIM], "decode_step")
    for request_id, samples in fellows.items():
        assert_same(ended[request_id], expected[samples])
    counters = engine.metrics_snapshot().counters
    assert counters["engine_kv_exhausted"] == counters["requests_failed:decode_step"] == 1
    assert_idle(engine)


def test_a_forward_that_fails_in_the_step_in_which_another_meets_its_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one at its ceiling has its text, the other its error."""
    engine = make_engine(max_blocks_per_seq=3, gc_freeze=False)
    (full,) = engine.transcribe_outputs([speech(75000)])
    assert full.finish_reason == "length"
    engine.add_request(speech(75000), VICTIM)
    engine.step()
    engine.add_request(speech(60000, 1), FELLOW)
    finish = engine._streaming._end_exhausted
    forward = engine._runner.forward_chunks

    def then_fail(request: Any) -> RequestOutput:
        monkeypatch.setattr(engine._runner, "forward_chunks", failing_once(forward, RuntimeError(SECRET)))
        return finish(request)

    monkeypatch.setattr(engine._streaming, "_end_exhausted", then_fail)
    ended = finals(drain(engine))
    assert_same(ended[VICTIM], full)
    assert_failed(ended[FELLOW], "streaming_forward")
    assert_idle(engine)


# decoding state that cannot be closed


def refuse_to_close(recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch, times: int = 1000) -> None:
    close, left = recorder.close, iter(range(times))

    def fragile(session: Any) -> None:
        close(session)
        if next(left, None) is not None:
            raise RuntimeError("close failed")

    monkeypatch.setattr(recorder, "close", fragile)


@pytest.mark.parametrize("fail", [fail_forward, fail_features, fail_decode], ids=["forward", "features", "decode"])
def test_a_failing_close_in_a_failing_step_does_not_escape_it(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch, fail: Callable[[ASREngine, pytest.MonkeyPatch], None]
) -> None:
    engine = make_engine(decode_method="recording", gc_freeze=False)
    ids = {engine.add_request(speech(20000)) for _ in range(3)}
    fail(engine, monkeypatch)
    refuse_to_close(recorder, monkeypatch)
    ended = finals(drain(engine))
    assert set(ended) == ids
    assert all(output.finish_reason == "error" for output in ended.values())
    assert [session.closed for session in recorder.sessions] == [1, 1, 1]
    assert_idle(engine)


def test_a_failing_close_at_the_end_of_a_stream_gives_one_output_and_returns_everything(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(decode_method="recording", gc_freeze=False)
    (expected,) = engine.transcribe_outputs([speech(20000)])
    refuse_to_close(recorder, monkeypatch, times=1)
    ids = [engine.add_request(speech(20000)) for _ in range(2)]
    ended = finals(drain(engine))
    assert set(ended) == set(ids)
    assert_same(ended[ids[1]], expected)
    assert [session.closed for session in recorder.sessions] == [1, 1, 1]
    assert_idle(engine)


def test_a_failing_close_does_not_keep_shutdown_from_ending_the_others(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(decode_method="recording", gc_freeze=False)
    for _ in range(3):
        engine.feed_chunk(engine.add_streaming_request(), speech(20000))
    engine.step()
    refuse_to_close(recorder, monkeypatch, times=1)
    with contextlib.suppress(RuntimeError):
        engine.shutdown()
    assert [session.closed for session in recorder.sessions] == [1, 1, 1]
    assert_idle(engine)


# every stage of a clip, in a padded batch and in a packed row

CLIPS = (20000, 30000, 40000)
MARK = np.float32(0.8765432)


def offline_engine(packed: bool, **options: object) -> ASREngine:
    return make_engine(enable_sequence_packing=packed, gc_freeze=False, **options)


@cache
def shared_engine(packed: bool) -> ASREngine:
    """Left idle and whole by every test."""
    return offline_engine(packed)


@cache
def undisturbed_clips(packed: bool) -> tuple[RequestOutput, ...]:
    engine = shared_engine(packed)
    return tuple(engine.transcribe_outputs([speech(n)], streaming=False)[0] for n in CLIPS)


def failures(engine: ASREngine) -> dict[str, float]:
    """Failed requests by stage, forgotten afterwards."""
    counters = engine.metrics_snapshot().counters
    engine._metrics.clear()
    return {name.split(":")[1]: count for name, count in counters.items() if name.startswith("requests_failed:")}


def offline_call(engine: ASREngine, part: str, packed: bool) -> tuple[object, str]:
    return {
        "features": (engine._inputs, "packed" if packed else "clips"),
        "forward": (engine._runner, "forward_packed" if packed else "forward_clips"),
        "decode": (engine._outputs, "advance"),
        "rendering": (engine._outputs, "clip_output"),
        "open": (engine._outputs, "open"),
        "close": (engine._outputs, "close"),
    }[part]


def concerns(part: str, samples: int, engine: ASREngine) -> Callable[[tuple[Any, ...]], bool]:
    """Whether a call is for the clip of so many samples."""
    frames = engine._inputs._geometry.frames_out(engine._inputs.spec.num_frames(samples))

    def lengths(arguments: tuple[Any, ...]) -> Sequence[int]:
        if part == "features":
            return [len(wave) for wave in arguments[0]]
        if part == "rendering":
            return [arguments[0].samples_received]
        held = arguments[{"forward": 1, "decode": 2}[part]]
        return held.frames if isinstance(held, PackedRow) else held

    return lambda arguments: (samples if part in ("features", "rendering") else frames) in lengths(arguments)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize("part", ["features", "forward", "decode", "rendering"])
def test_a_clip_that_fails_anywhere_fails_alone(
    part: str, culprit: int, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = undisturbed()
    engine, good = shared_engine(packed), undisturbed_clips(packed)
    owner, method = offline_call(engine, part, packed)
    call, is_culprit = getattr(owner, method), concerns(part, CLIPS[culprit], engine)

    def fragile(*arguments: Any) -> object:
        if is_culprit(arguments):
            raise RuntimeError(SECRET)
        return call(*arguments)

    monkeypatch.setattr(owner, method, fragile)
    # The streams' steps are the clips' steps.
    engine.add_request(speech(60000), VICTIM)
    ids = [engine.add_request(speech(n), streaming=False) for n in CLIPS]
    ended = finals(drain(engine))
    assert set(ended) == {VICTIM, *ids}
    assert_same(ended[VICTIM], expected[VICTIM])
    for index, request_id in enumerate(ids):
        if index == culprit:
            assert_failed(ended[request_id], "offline_forward")
            assert ended[request_id].samples_done == CLIPS[culprit]
        else:
            assert_same(ended[request_id], good[index])
    assert failures(engine) == {"offline_forward": 1}
    monkeypatch.setattr(owner, method, call)
    assert_serves(engine)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("part", ["features", "forward", "decode", "rendering", "open", "close"])
def test_an_error_that_does_not_come_back_fails_no_clip(
    part: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, good = shared_engine(packed), undisturbed_clips(packed)
    owner, method = offline_call(engine, part, packed)
    monkeypatch.setattr(owner, method, failing_once(getattr(owner, method), RuntimeError(SECRET)))
    outputs = engine.transcribe_outputs([speech(n) for n in CLIPS], streaming=False)
    for output, expected in zip(outputs, good, strict=True):
        assert_same(output, expected)
    assert failures(engine) == {}
    assert_idle(engine)


OUT_OF_MEMORY = {
    "host": MemoryError(SECRET),
    "device": torch.OutOfMemoryError(SECRET),
    "allocator": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
}


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("features", "host"),
        *(("forward", error) for error in OUT_OF_MEMORY),
        ("decode", "device"),
        ("rendering", "allocator"),
    ],
)
def test_without_memory_a_pass_fails_whole_and_the_next_goes_on(
    part: str, error: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of two passes, the first of two clips."""
    expected, _ = undisturbed()
    # Overdue clips go together whatever their lengths, and the partition cuts them.
    engine = offline_engine(
        packed, max_batch_frames=2 * 98, max_packed_frames=60, schedule_policy="bucket", max_wait_time=0.0
    )
    clips = [speech(n) for n in (16000, 47000, 12000)]
    (good,) = engine.transcribe_outputs([clips[1]], streaming=False)
    owner, method = offline_call(engine, part, packed)
    monkeypatch.setattr(owner, method, failing_once(getattr(owner, method), OUT_OF_MEMORY[error]))
    ids = [engine.add_request(clip, streaming=False) for clip in clips]
    outputs = engine.step()
    assert [output.request_id for output in outputs] == ids
    for output in (outputs[0], outputs[2]):
        assert_failed(output, "offline_oom", type(OUT_OF_MEMORY[error]).__name__)
    assert_same(outputs[1], good)
    assert engine.metrics_snapshot().counters["requests_failed:offline_oom"] == 2
    assert engine.transcribe(speech(60000)) == expected[VICTIM].text
    assert_idle(engine)


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("part", ["features", "forward", "decode", "rendering"])
def test_decoding_state_of_a_batch_that_failed_is_closed(
    recorder: RecordingStrategy, part: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = offline_engine(packed, decode_method="recording")
    owner, method = offline_call(engine, part, packed)
    monkeypatch.setattr(owner, method, failing_once(getattr(owner, method), RuntimeError(SECRET)))
    engine.transcribe_offline([speech(n) for n in CLIPS])
    assert [session.closed for session in recorder.sessions] == [1] * 6


def test_decoding_state_of_a_batch_that_could_not_be_opened_whole_is_closed(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = offline_engine(False, decode_method="recording")
    opened, left = recorder.open, iter(range(2))

    def no_third(hotwords: HotwordGraph | None = None) -> object:
        if next(left, None) is None:
            monkeypatch.setattr(recorder, "open", opened)
            raise RuntimeError("no session left")
        return opened(hotwords)

    monkeypatch.setattr(recorder, "open", no_third)
    assert all(engine.transcribe_offline([speech(n) for n in CLIPS]))
    assert [session.closed for session in recorder.sessions] == [1] * 5


def test_decoding_state_that_cannot_be_closed_keeps_none_of_its_batch_open(
    recorder: RecordingStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = offline_engine(False, decode_method="recording")
    refuse_to_close(recorder, monkeypatch, times=1)
    assert all(engine.transcribe_offline([speech(n) for n in CLIPS]))
    assert all(session.closed == 1 for session in recorder.sessions)


def test_a_clip_that_cannot_be_prepared_fails_alone() -> None:
    expected, _ = undisturbed()
    engine = make_engine(overlap_admit=True, gc_freeze=False)
    engine.add_request(speech(60000), VICTIM)
    engine.add_request(speech(9000), "clip 0", streaming=False)
    engine.add_request(np.array([np.nan], dtype=np.float32), "bad", streaming=False)
    engine.add_request(speech(10000), "clip 1", streaming=False)
    ended = finals(drain(engine))
    assert (ended["bad"].finish_reason, ended["bad"].error_stage) == ("error", "offline_prep")
    for request_id in (VICTIM, "clip 0", "clip 1"):
        assert_same(ended[request_id], expected[request_id])
    assert engine.metrics_snapshot().counters["requests_failed:offline_prep"] == 1
    assert_serves(engine)
    engine.shutdown()


def test_the_stages_are_a_fixed_set() -> None:
    """They are labels of a metric, which dashboards know by name."""
    assert get_args(ErrorStage) == (
        "offline_prep",
        "offline_forward",
        "offline_oom",
        "prefill_oom",
        "decode_step",
        "decode_oom",
        "streaming_features",
        "streaming_forward",
    )
