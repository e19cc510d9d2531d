"""Every way into the engine leads to the same words, and to the same words about what is wrong."""

import random
from collections.abc import Callable
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine.engine import RequestSpec
from oasr_backend.errors import AudioError
from tests.engine.engines import assert_idle, assert_same, cut, drain, finals, make_engine, speech, stream

POLICIES = ("window", "bucket", "sjf", "fcfs")
PARTITIONS = ("count", "frames", "packing")
# Two companions, one shorter and one longer, so that every batch has padding and every policy a choice.
CLIP, COMPANIONS = speech(30000), (speech(9000, 1), speech(47000, 0))


def way_engine(**options: object) -> ASREngine:
    return make_engine(gc_freeze=False, **options)


@cache
def reference() -> ASREngine:
    """One request at a time."""
    return way_engine(max_batch_size=1)


@cache
def expected(streaming: bool) -> RequestOutput:
    if streaming:
        return stream(reference(), [CLIP])
    request_id = reference().add_request(CLIP, streaming=False)
    return finals(drain(reference()))[request_id]


# the ways


def one_request(engine: ASREngine, streaming: bool) -> RequestOutput:
    others = [engine.add_request(samples, streaming=streaming) for samples in COMPANIONS]
    request_id = engine.add_request(CLIP, streaming=streaming)
    ended = finals(drain(engine))
    assert set(ended) == {request_id, *others}
    return ended[request_id]


def run_to_the_end(engine: ASREngine, streaming: bool) -> RequestOutput:
    request_id = engine.add_request(CLIP, streaming=streaming)
    for samples in COMPANIONS:
        engine.add_request(samples, streaming=streaming)
    return finals(engine.run())[request_id]


def bulk(engine: ASREngine, streaming: bool) -> RequestOutput:
    admissions = engine.add_requests_batch(
        [
            {"audio": COMPANIONS[0], "streaming": streaming},
            RequestSpec(CLIP, "mine", streaming=streaming),
            {"audio": COMPANIONS[1], "streaming": streaming},
        ]
    )
    assert [admission.error for admission in admissions] == [None] * 3
    return finals(drain(engine))["mine"]


def outputs_of_a_list(engine: ASREngine, streaming: bool) -> RequestOutput:
    return engine.transcribe_outputs([COMPANIONS[1], CLIP, COMPANIONS[0]], streaming)[1]


def fed_in_pieces(engine: ASREngine, streaming: bool) -> RequestOutput:
    """Two streams at once, in pieces of any length, with any number of steps after each."""
    assert streaming
    rng = random.Random(5)
    engine.add_streaming_request("mine")
    other = engine.add_streaming_request()
    outputs: list[RequestOutput] = []
    pieces = {
        "mine": cut(CLIP, [rng.choice((1, 7, 160, 400, 3200, 12000)) for _ in range(60)]),
        other: cut(COMPANIONS[1], [rng.randint(1, 9000) for _ in range(60)]),
    }
    while any(pieces.values()):
        name = rng.choice([name for name, left in pieces.items() if left])
        engine.feed_chunk(name, pieces[name].pop(0), is_last=not pieces[name])
        for _ in range(rng.choice((0, 1, 1, 2))):
            outputs += engine.step()
    return finals([*outputs, *drain(engine)])["mine"]


OFFLINE_WAYS = (one_request, run_to_the_end, bulk, outputs_of_a_list)
STREAMING_WAYS = (*OFFLINE_WAYS, fed_in_pieces)

ENGINES = [
    *({"service_mode": "streaming", "schedule_policy": policy} for policy in POLICIES),
    *(
        {"service_mode": mode, "schedule_policy": policy, "partition_policy": partition}
        for mode, policy, partition in product(("mixed", "offline"), POLICIES, PARTITIONS)
    ),
]


@pytest.mark.parametrize("options", ENGINES, ids=lambda options: "-".join(map(str, options.values())))
def test_every_way_into_every_engine_says_the_same(options: dict[str, object]) -> None:
    engine = way_engine(**options)
    for streaming, ways in ((False, OFFLINE_WAYS), (True, STREAMING_WAYS)):
        if options["service_mode"] == ("offline" if streaming else "streaming"):
            continue
        for way in ways:
            assert_same(way(engine, streaming), expected(streaming))
            assert_idle(engine)
        assert engine.transcribe(CLIP, streaming=streaming) == expected(streaming).text
        texts = engine.transcribe([*COMPANIONS, CLIP], streaming=streaming)
        assert texts[2] == expected(streaming).text and len(set(texts)) == 3
        if not streaming:
            assert engine.transcribe_offline(CLIP) == expected(False).text
            assert engine.transcribe_offline([CLIP, *COMPANIONS])[0] == expected(False).text
        assert_idle(engine)
    assert expected(False).text != expected(True).text


@pytest.mark.parametrize(
    "options",
    [
        {"overlap_admit": True},
        {"overlap_admit": True, "enable_sequence_packing": True},
        {"long_form": True, "overlap_admit": True},
        {"preferred_batch_size": (2, 4), "partition_policy": "count", "max_wait_time": 0.0},
        {"max_batch_frames": 400},
        {"enable_sequence_packing": True, "max_packed_frames": 50},
        {"use_paged_cache": False},
        {"max_batch_size": 1},
        {"num_left_chunks": 4, "block_size_frames": 5},
    ],
    ids=lambda options: "-".join(options),
)
def test_no_other_setting_of_admission_batching_or_cache_changes_a_word(options: dict[str, object]) -> None:
    engine = way_engine(**options)
    for way in OFFLINE_WAYS:
        assert_same(way(engine, False), expected(False))
    if options.get("max_batch_size") != 1:
        for way in STREAMING_WAYS:
            assert_same(way(engine, True), expected(True))
    assert (engine.num_running, engine.num_waiting, engine.has_work) == (0, 0, False)
    engine.shutdown()


def test_clips_and_streams_by_every_way_at_once(engine: ASREngine) -> None:
    """What comes in by one way does not change what comes in by another."""
    kinds: dict[str, bool] = {}
    for streaming in (True, False, True, False):
        kinds[engine.add_request(CLIP, streaming=streaming)] = streaming
        (admission,) = engine.add_requests_batch([{"audio": CLIP, "streaming": streaming}])
        kinds[admission.request_id or ""] = streaming
    live = engine.add_streaming_request()
    kinds[live] = True
    outputs = []
    for piece in cut(CLIP, [5000] * 6):
        engine.feed_chunk(live, piece)
        outputs += engine.step()
    engine.feed_chunk(live, [], is_last=True)
    for streaming in (True, False):
        assert engine.transcribe(CLIP, streaming) == expected(streaming).text
    ended = finals([*outputs, *drain(engine)])
    assert set(ended) == set(kinds)
    for request_id, streaming in kinds.items():
        assert_same(ended[request_id], expected(streaming))
    assert_idle(engine)


# what is wrong


def refusal(call: Callable[[], object]) -> tuple[type[Exception], str]:
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    return type(caught.value), str(caught.value)


def refused_in_bulk(engine: ASREngine, **arguments: Any) -> tuple[type[Exception], str]:
    """As a spec and as a mapping, which must agree."""
    by_form = engine.add_requests_batch([RequestSpec(**arguments), arguments])
    first, second = ((type(admission.error), str(admission.error)) for admission in by_form)
    assert first == second and first[0] is not type(None)
    return first  # type: ignore[return-value]


def refused_aside(engine: ASREngine, **arguments: Any) -> str:
    """What the output of a clip says that was prepared aside."""
    request_id = engine.add_request(streaming=False, **arguments)
    output = finals(drain(engine))[request_id]
    assert output.error_stage == "offline_prep" and output.error is not None
    return output.error


AUDIO: dict[str, tuple[object, type[Exception], str]] = {
    "nan": (np.array([0.0, np.nan]), AudioError, "audio holds NaN or infinity; send finite samples in [-1, 1]"),
    "infinity": (np.array([-np.inf]), AudioError, "audio holds NaN or infinity; send finite samples in [-1, 1]"),
    "int16 as float": (
        np.array([0.5, -1000.0]),
        AudioError,
        "audio holds a sample of 1000; samples must lie in [-1, 1]: send int16 audio as int16, or divide it by 32768",
    ),
    "stereo": (
        np.zeros((2, 400), dtype=np.float32),
        ValueError,
        "audio has shape (2, 400); expected one channel, [samples]; mix down first",
    ),
    "int32": (
        np.zeros(4, dtype=np.int32),
        TypeError,
        "audio holds int32; expected float32 in [-1, 1] or int16",
    ),
    "path": ("a.wav", TypeError, "audio is a path or bytes; the engine takes waveforms, decode the file first"),
    "bytes": (b"RIFF", TypeError, "audio is a path or bytes; the engine takes waveforms, decode the file first"),
    "none": (None, ValueError, "audio has shape (); expected one channel, [samples]; mix down first"),
}


@pytest.fixture(scope="module")
def engines() -> SimpleNamespace:
    """Left idle by every test."""
    return SimpleNamespace(plain=way_engine(), aside=way_engine(overlap_admit=True))


@pytest.mark.parametrize("fault", AUDIO)
def test_bad_audio_is_refused_in_the_same_words_everywhere(fault: str, engines: SimpleNamespace) -> None:
    audio, kind, message = AUDIO[fault]
    engine: ASREngine = engines.plain
    live = engine.add_streaming_request()
    said = [
        refusal(lambda: engine.add_request(audio, streaming=False)),
        refusal(lambda: engine.add_request(audio)),
        refused_in_bulk(engine, audio=audio, streaming=False),
        refused_in_bulk(engine, audio=audio),
        refusal(lambda: engine.transcribe(audio)),
        refusal(lambda: engine.transcribe([CLIP, audio])),
        refusal(lambda: engine.transcribe_offline(audio)),
        refusal(lambda: engine.transcribe_outputs([CLIP, audio], streaming=False)),
        refusal(lambda: engine.transcribe_outputs([CLIP, audio])),
        refusal(lambda: engine.feed_chunk(live, audio)),
        refusal(lambda: engine.feed_chunk(live, audio, is_last=True)),
        refusal(lambda: engines.aside.add_request(audio)),
        (kind, refused_aside(engines.aside, audio=audio)),
    ]
    assert set(said) == {(kind, message)}
    assert engine.abort_request(live)
    for one in (engine, engines.aside):
        assert_idle(one)


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "rate": ({"sample_rate": 8000}, "audio is at 8000 Hz and the model takes 16000 Hz; resample it first"),
    "unknown option": (
        {"decoding": {"beam": 5}},
        "unknown decoding option beam; valid are decode_method, two_pass, n_best, word_timestamps, ",
    ),
    "method": (
        {"decoding": {"decode_method": "ctc_cuda"}},
        "decode_method 'ctc_cuda' is not supported; choose one of: attention_rescoring",
    ),
    "hotwords": (
        {"decoding": {"hotwords": ["word"]}},
        "hotwords are set, but this decode method cannot honour them; choose decode_method ctc_prefix_beam",
    ),
    "option value": ({"decoding": {"n_best": 0}}, "n_best is 0; it must be a whole number of at least 1"),
    "alternatives": ({"decoding": {"n_best": 3}}, "n_best is 3, but this decode method gives 1; ask for no more"),
    "language": (
        {"decoding": {"language": "en"}},
        "language is 'en', but no autoregressive decode family is installed; leave it out",
    ),
    "no options": ({"decoding": 5}, "decoding is 5; pass DecodingOptions or a mapping of their fields"),
    "priority": ({"priority": 1.5}, "priority is 1.5; it must be a whole number, lower ones go first"),
    "truth": ({"priority": True}, "priority is True; it must be a whole number, lower ones go first"),
    "id": ({"request_id": "taken"}, "request id 'taken' is in use; ids must be unique while a request lives"),
}


@pytest.mark.parametrize("fault", ARGUMENTS)
def test_bad_arguments_are_refused_in_the_same_words_everywhere(fault: str, engines: SimpleNamespace) -> None:
    arguments, message = ARGUMENTS[fault]
    said = []
    for engine in (engines.plain, engines.aside):
        engine.add_streaming_request("taken")
        said += [
            refusal(lambda engine=engine: engine.add_request(CLIP, streaming=False, **arguments)),
            refusal(lambda engine=engine: engine.add_request(CLIP, **arguments)),
            refusal(lambda engine=engine: engine.add_streaming_request(**arguments)),
            refused_in_bulk(engine, audio=CLIP, streaming=False, **arguments),
            refused_in_bulk(engine, audio=CLIP, **arguments),
        ]
        if set(arguments) == {"decoding"}:
            said += [
                refusal(lambda engine=engine: engine.transcribe_outputs([CLIP], **arguments)),
                refusal(lambda engine=engine: engine.transcribe_outputs([CLIP], streaming=False, **arguments)),
            ]
        assert engine.abort_request("taken")
        assert_idle(engine)
    assert len(set(said)) == 1
    assert said[0][1].startswith(message)


@pytest.mark.parametrize(
    ("mode", "streaming", "message"),
    [
        (
            "offline",
            True,
            "this engine is offline only (service_mode='offline', or a checkpoint trained without chunks); use "
            "add_request(streaming=False)",
        ),
        (
            "streaming",
            False,
            "this engine streams only (service_mode='streaming'); add_request(streaming=True)",
        ),
    ],
    ids=["stream", "clip"],
)
def test_the_kind_that_is_not_served_is_refused_in_the_same_words_everywhere(
    mode: str, streaming: bool, message: str
) -> None:
    engine = way_engine(service_mode=mode)
    said = [
        refusal(lambda: engine.add_request(CLIP, streaming=streaming)),
        refused_in_bulk(engine, audio=CLIP, streaming=streaming),
        refusal(lambda: engine.transcribe(CLIP, streaming)),
        refusal(lambda: engine.transcribe_outputs([CLIP], streaming)),
        refusal(engine.add_streaming_request if streaming else lambda: engine.transcribe_offline(CLIP)),
    ]
    assert set(said) == {(ValueError, message)}
    assert_idle(engine)


def test_a_clip_that_is_too_long_is_refused_in_the_same_words_everywhere() -> None:
    engine, aside = way_engine(max_audio_seconds=1.0), way_engine(max_audio_seconds=1.0, overlap_admit=True)
    said = [
        refusal(lambda: engine.add_request(CLIP, streaming=False)),
        refused_in_bulk(engine, audio=CLIP, streaming=False),
        refusal(lambda: engine.transcribe_offline(CLIP)),
        refusal(lambda: engine.transcribe_outputs([CLIP], streaming=False)),
        (ValueError, refused_aside(aside, audio=CLIP)),
    ]
    assert set(said) == {
        (ValueError, "the clip lasts 1.9 s and max_audio_seconds is 1; stream it, cut it, or set long_form")
    }
    for one in (engine, aside):
        assert_idle(one)
    aside.shutdown()
