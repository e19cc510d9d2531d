"""Many requests under one hold of the lock: what is wrong with one is said in its place."""

import threading
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import torch

from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine.engine import Admission, RequestSpec
from oasr_backend.engine.options import DecodingOptions
from tests.engine.engines import assert_idle, assert_same, drain, finals, make_engine, speech

RATE = 16000


def bulk_engine(**options: object) -> ASREngine:
    return make_engine(gc_freeze=False, **options)


@pytest.fixture(params=[False, True], ids=["prepared at the call", "prepared aside"])
def engine(request: pytest.FixtureRequest) -> Iterator[ASREngine]:
    engine = bulk_engine(overlap_admit=request.param)
    yield engine
    engine.shutdown()


@cache
def reference() -> ASREngine:
    return bulk_engine()


@cache
def alone(samples: int, utterance: int, streaming: bool) -> RequestOutput:
    """What `add_request` gives for a clip by itself."""
    request_id = reference().add_request(speech(samples, utterance), streaming=streaming)
    return finals(reference().run())[request_id]


def ids(admissions: list[Admission]) -> list[str]:
    """All of them were taken."""
    for admission in admissions:
        assert admission.error is None
    return [admission.request_id or "" for admission in admissions]


# what is taken


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("form", ["spec", "mapping"])
def test_outputs_equal_those_of_single_requests(engine: ASREngine, form: str, streaming: bool) -> None:
    """More of them than places, of very different lengths."""
    parts = [(30000, 2), (0, 0), (399, 1), (47000, 0), (9000, 1), (20000, 2), (12000, 0)]
    arguments = [{"audio": speech(*part), "streaming": streaming} for part in parts]
    specs = [RequestSpec(**given) if form == "spec" else given for given in arguments]
    names = ids(engine.add_requests_batch(specs))
    assert len(set(names)) == len(parts) == engine.num_waiting
    ended = finals(drain(engine))
    assert set(ended) == set(names)
    for name, part in zip(names, parts, strict=True):
        assert_same(ended[name], alone(*part, streaming))
    assert_idle(engine)


def test_a_batch_may_mix_forms_and_kinds(engine: ASREngine) -> None:
    names = ids(
        engine.add_requests_batch(
            [
                RequestSpec(speech(20000), "a"),
                {"audio": speech(20000), "request_id": "b", "streaming": False},
                RequestSpec(speech(20000), request_id="c", streaming=False, sample_rate=RATE),
                {"audio": (speech(20000) * 32768).astype(np.int16), "request_id": "d"},
                {"audio": torch.from_numpy(speech(20000)), "request_id": "e", "streaming": False},
            ]
        )
    )
    assert names == list("abcde")
    ended = finals(drain(engine))
    for name in names:
        assert_same(ended[name], alone(20000, 2, name in "ad"))
    assert_idle(engine)


def test_a_spec_streams_unless_told_otherwise(engine: ASREngine) -> None:
    (name,) = ids(engine.add_requests_batch([{"audio": speech(20000)}]))
    assert_same(finals(drain(engine))[name], alone(20000, 2, True))


def test_options_are_honoured(engine: ASREngine) -> None:
    options = [{"word_timestamps": True}, DecodingOptions(word_timestamps=True), None, {}]
    specs = [
        {"audio": speech(30000), "streaming": streaming, "decoding": decoding}
        for decoding in options
        for streaming in (True, False)
    ]
    names = ids(engine.add_requests_batch(specs))
    ended = finals(drain(engine))
    assert [ended[name].words is not None for name in names] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("streaming", [False, True])
def test_priorities_are_honoured(streaming: bool) -> None:
    engine = bulk_engine(max_batch_size=1)
    specs = [
        {"audio": speech(8000), "request_id": str(priority), "streaming": streaming, "priority": priority}
        for priority in (5, 0, -1, 3)
    ]
    ids(engine.add_requests_batch(specs))
    assert [output.request_id for output in engine.run()] == ["-1", "0", "3", "5"]


def test_an_empty_batch_is_nothing(engine: ASREngine) -> None:
    assert engine.add_requests_batch([]) == []
    assert_idle(engine)


def test_what_was_taken_can_be_aborted(engine: ASREngine) -> None:
    specs = [{"audio": speech(20000), "streaming": streaming} for streaming in (True, False) * 3]
    names = ids(engine.add_requests_batch(specs))
    for name in names[:-2]:
        assert engine.abort_request(name)
    assert engine.num_waiting == 2
    assert set(finals(drain(engine))) == set(names[-2:])
    assert_idle(engine)


def test_a_client_may_overwrite_its_buffer() -> None:
    engine = bulk_engine()
    buffer = speech(20000).copy()
    names = ids(engine.add_requests_batch([{"audio": buffer, "streaming": streaming} for streaming in (True, False)]))
    buffer[:] = 1
    ended = finals(drain(engine))
    for name, streaming in zip(names, (True, False), strict=True):
        assert_same(ended[name], alone(20000, 2, streaming))


def test_what_was_taken_is_counted_and_nothing_else(engine: ASREngine) -> None:
    engine.add_requests_batch(
        [
            {"audio": speech(16000)},
            {"audio": speech(16000), "priority": "high"},
            {"audio": speech(8000), "streaming": False},
            {"audio": speech(8000), "streaming": False},
            {"audio": np.zeros(400, dtype=np.int32)},
        ]
    )
    drain(engine)
    counters = engine.metrics_snapshot().counters
    assert counters["requests_admitted:streaming"] == 1
    assert counters["requests_admitted:offline"] == 2
    assert counters["engine_audio_seconds:streaming"] == counters["engine_audio_seconds:offline"] == 1.0
    assert_idle(engine)


# what is refused

AUDIO = {
    "nan": np.array([0.0, np.nan], dtype=np.float32),
    "infinity": np.array([np.inf, 0.0], dtype=np.float32),
    "int16 as float": np.full(400, 1000.0, dtype=np.float32),
    "stereo": np.zeros((2, 400), dtype=np.float32),
    "int32": np.zeros(400, dtype=np.int32),
    "path": "clip.wav",
    "bytes": b"RIFF",
    "none": None,
    "ragged": [[0.0], [0.0, 0.0]],
}
ARGUMENTS = {
    "rate": {"sample_rate": 8000},
    "unknown option": {"decoding": {"beam": 5}},
    "option value": {"decoding": {"n_best": 0}},
    "option not to be had": {"decoding": {"n_best": 5}},
    "option of another family": {"decoding": {"language": "en"}},
    "no options": {"decoding": "word_timestamps"},
    "priority": {"priority": "high"},
    "id in use": {"request_id": "live"},
    "id of this batch": {"request_id": "before"},
}


def refusal(call: Callable[[], object]) -> Exception:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return caught.value


def assert_only_the_middle_one_is_refused(
    engine: ASREngine, admissions: list[Admission], expected: Exception, parts: dict[str, tuple[int, bool]]
) -> None:
    """It says what a single request would have been told; those around it are answered."""
    before, middle, after = admissions
    assert ids([before, after]) == ["before", "after"]
    assert middle.request_id is None
    assert type(middle.error) is type(expected) and str(middle.error) == str(expected)
    ended = finals(drain(engine))
    assert set(ended) == set(parts)
    for name, (samples, streaming) in parts.items():
        assert_same(ended[name], alone(samples, 2, streaming))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("fault", ARGUMENTS)
def test_a_bad_argument_is_said_in_its_place(engine: ASREngine, fault: str, streaming: bool) -> None:
    live = engine.add_request(speech(9000), "live")
    bad = {"audio": speech(12000), "streaming": streaming, **ARGUMENTS[fault]}
    admissions = engine.add_requests_batch(
        [
            {"audio": speech(20000), "request_id": "before", "streaming": streaming},
            bad,
            {"audio": speech(8000), "request_id": "after", "streaming": streaming},
        ]
    )
    expected = refusal(lambda: engine.add_request(**bad))  # type: ignore[arg-type]
    parts = {live: (9000, True), "before": (20000, streaming), "after": (8000, streaming)}
    assert_only_the_middle_one_is_refused(engine, admissions, expected, parts)
    assert_idle(engine)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("fault", AUDIO)
def test_bad_audio_is_said_in_its_place(fault: str, streaming: bool) -> None:
    engine = bulk_engine()
    bad = {"audio": AUDIO[fault], "streaming": streaming}
    admissions = engine.add_requests_batch(
        [
            RequestSpec(speech(20000), "before", streaming=streaming),
            RequestSpec(**bad),
            RequestSpec(speech(8000), "after", streaming=streaming),
        ]
    )
    expected = refusal(lambda: engine.add_request(**bad))  # type: ignore[arg-type]
    parts = {"before": (20000, streaming), "after": (8000, streaming)}
    assert_only_the_middle_one_is_refused(engine, admissions, expected, parts)
    assert_idle(engine)


@pytest.mark.parametrize("fault", AUDIO)
def test_bad_audio_that_is_prepared_aside_is_said_in_its_output(fault: str) -> None:
    engine = bulk_engine(overlap_admit=True)
    names = ids(
        engine.add_requests_batch(
            [
                {"audio": speech(20000), "streaming": False},
                {"audio": AUDIO[fault], "streaming": False},
                {"audio": speech(8000), "streaming": False},
            ]
        )
    )
    ended = finals(drain(engine))
    assert_same(ended[names[0]], alone(20000, 2, False))
    assert_same(ended[names[2]], alone(8000, 2, False))
    output = ended[names[1]]
    assert (output.finish_reason, output.error_stage, output.text) == ("error", "offline_prep", "")
    expected = refusal(lambda: reference().add_request(AUDIO[fault], streaming=False))
    assert output.error == str(expected)
    assert_idle(engine)
    engine.shutdown()


def test_bad_audio_for_a_stream_is_said_in_its_place_even_when_clips_are_prepared_aside() -> None:
    engine = bulk_engine(overlap_admit=True)
    bad, good = engine.add_requests_batch([{"audio": AUDIO["nan"]}, {"audio": speech(8000), "streaming": False}])
    assert isinstance(bad.error, ValueError) and "NaN" in str(bad.error)
    assert list(finals(drain(engine))) == [good.request_id]
    engine.shutdown()


@pytest.mark.parametrize("spec", [None, 5, "audio", [speech(400)], {}, {"streaming": False}], ids=repr)
def test_what_is_no_spec_is_said_in_its_place(engine: ASREngine, spec: object) -> None:
    good, bad = engine.add_requests_batch([{"audio": speech(8000)}, spec])  # type: ignore[list-item]
    assert bad.request_id is None and isinstance(bad.error, TypeError)
    assert list(finals(drain(engine))) == ids([good])
    assert_idle(engine)


def test_an_unknown_name_in_a_mapping_is_said_in_its_place(engine: ASREngine) -> None:
    bad, good = engine.add_requests_batch([{"audio": speech(400), "id": "a"}, {"audio": speech(400)}])
    assert bad.request_id is None and isinstance(bad.error, TypeError) and "'id'" in str(bad.error)
    assert list(finals(drain(engine))) == ids([good])
    assert_idle(engine)


def test_of_two_with_one_id_the_first_is_taken(engine: ASREngine) -> None:
    for streaming in (False, True):
        first, second, third = engine.add_requests_batch(
            [{"audio": speech(n), "request_id": "twice", "streaming": streaming} for n in (20000, 9000, 12000)]
        )
        assert ids([first]) == ["twice"]
        for refused in (second, third):
            assert isinstance(refused.error, ValueError) and "'twice' is in use" in str(refused.error)
        assert_same(finals(drain(engine))["twice"], alone(20000, 2, streaming))
    assert_idle(engine)


@pytest.mark.parametrize("kind", ["waiting stream", "running stream", "clip"])
@pytest.mark.parametrize("streaming", [False, True])
def test_the_id_of_a_live_request_is_refused(engine: ASREngine, kind: str, streaming: bool) -> None:
    if kind == "clip":
        engine.add_request(speech(9000), "live", streaming=False)
    else:
        engine.add_streaming_request("live")
    if kind == "running stream":
        engine.step()
    (admission,) = engine.add_requests_batch([{"audio": speech(20000), "request_id": "live", "streaming": streaming}])
    assert admission.request_id is None
    assert isinstance(admission.error, ValueError) and "'live' is in use" in str(admission.error)
    assert engine.abort_request("live") and not engine.abort_request("live")
    assert drain(engine) == []
    assert_idle(engine)


@pytest.mark.parametrize("request_id", [["a"], {"a": 1}], ids=["list", "mapping"])
@pytest.mark.parametrize("streaming", [False, True])
def test_an_id_that_can_be_none_is_said_in_its_place(engine: ASREngine, request_id: object, streaming: bool) -> None:
    admissions = engine.add_requests_batch(
        [
            {"audio": speech(20000), "request_id": "before", "streaming": streaming},
            {"audio": speech(400), "request_id": request_id, "streaming": streaming},
            {"audio": speech(8000), "request_id": "after", "streaming": streaming},
        ]
    )
    assert [admission.request_id for admission in admissions] == ["before", None, "after"]
    assert isinstance(admissions[1].error, TypeError | ValueError)
    assert set(finals(drain(engine))) == {"before", "after"}
    assert_idle(engine)


class Unreadable:
    """Says that it is an array and cannot be read."""

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        raise RuntimeError("the device that held it is gone")


@pytest.mark.parametrize("audio", [Unreadable(), torch.zeros(400, device="meta")], ids=["array", "tensor"])
@pytest.mark.parametrize("streaming", [False, True])
def test_audio_that_cannot_be_read_is_said_in_its_place(audio: object, streaming: bool) -> None:
    engine = bulk_engine()
    bad, good = engine.add_requests_batch(
        [{"audio": audio, "streaming": streaming}, {"audio": speech(8000), "streaming": streaming}]
    )
    assert bad.request_id is None and bad.error is not None
    assert list(finals(drain(engine))) == ids([good])
    assert_idle(engine)


def test_a_clip_that_is_too_long_is_said_in_its_place() -> None:
    engine = bulk_engine(max_audio_seconds=1.0)
    good, bad, streamed = engine.add_requests_batch(
        [
            {"audio": speech(16000), "streaming": False},
            {"audio": speech(24000), "streaming": False},
            {"audio": speech(24000), "streaming": True},
        ]
    )
    assert isinstance(bad.error, ValueError) and "lasts 1.5 s and max_audio_seconds is 1" in str(bad.error)
    ended = finals(drain(engine))
    assert set(ended) == set(ids([good, streamed]))
    assert_idle(engine)


def test_a_clip_that_is_too_long_and_prepared_aside_is_said_in_its_output() -> None:
    engine = bulk_engine(max_audio_seconds=1.0, overlap_admit=True)
    good, bad = ids(engine.add_requests_batch([{"audio": speech(n), "streaming": False} for n in (16000, 24000)]))
    ended = finals(drain(engine))
    assert ended[good].finish_reason == "stop"
    assert ended[bad].error == ("the clip lasts 1.5 s and max_audio_seconds is 1; stream it, cut it, or set long_form")
    assert_idle(engine)
    engine.shutdown()


@pytest.mark.parametrize(("mode", "served"), [("offline", False), ("streaming", True)])
def test_the_other_kind_is_said_in_its_place(mode: str, served: bool) -> None:
    engine = bulk_engine(service_mode=mode)
    bad, good = engine.add_requests_batch([{"audio": speech(9000), "streaming": kind} for kind in (not served, served)])
    assert isinstance(bad.error, ValueError) and f"service_mode='{mode}'" in str(bad.error)
    assert_same(finals(drain(engine))[good.request_id or ""], alone(9000, 2, served))
    assert_idle(engine)


def test_a_batch_in_which_all_is_wrong_leaves_nothing(engine: ASREngine) -> None:
    admissions = engine.add_requests_batch(
        [{"audio": speech(400), "priority": None}, {"audio": "clip.wav"}, {"audio": speech(400), "sample_rate": 1}]
    )
    assert [admission.request_id for admission in admissions] == [None] * 3
    assert all(isinstance(admission.error, TypeError | ValueError) for admission in admissions)
    assert_idle(engine)
    assert drain(engine) == []


def test_a_batch_is_admitted_under_one_hold_of_the_lock() -> None:
    """No step falls between two of its clips, so that they go together."""
    engine = bulk_engine(service_mode="offline")
    stop = threading.Event()
    outputs: list[RequestOutput] = []

    def step() -> None:
        while not stop.is_set() or engine.has_work:
            outputs.extend(engine.step())

    stepper = threading.Thread(target=step, daemon=True)
    stepper.start()
    names = []
    for _ in range(20):
        names += ids(engine.add_requests_batch([{"audio": speech(4000), "streaming": False}] * 4))
    stop.set()
    stepper.join(120)
    assert not stepper.is_alive()
    assert set(finals(outputs)) == set(names)
    assert set(engine.metrics_snapshot().samples["engine_batch_size:offline"]) == {4.0}
    assert_idle(engine)
