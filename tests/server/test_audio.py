"""Audio of every kind through the real server: files, raw samples, streams of other rates and encodings."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import soxr

from oasr_backend.audio.bandwidth import NARROW_BAND
from oasr_backend.serve import RunningServer
from tests.audio.recordings import FORMATS, silent_film, sndfile, telephone
from tests.server.support import (
    DECODE,
    NOTHING,
    OFFLINE,
    PROTOCOLS,
    RATE,
    TRANSCRIBE,
    Stream,
    Wire,
    as_pcm,
    clip,
    code_of,
    cut,
    eventually,
    inputs_of,
    new_id,
    references,
    refusal,
    status_of,
    streams_are_back,
    text_of,
    word_distance,
)

# The demo model understands this clip at 8 kHz, too.
SPEECH = clip("number.flac")
TEXT = references()["number.flac"]


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Wire]:
    with Wire(server, request.param) as wire:
        yield wire


@pytest.fixture
def grpc(server: RunningServer) -> Iterator[Wire]:
    with Wire(server) as wire:
        yield wire


def files(*data: bytes) -> dict[str, np.ndarray]:
    return {"AUDIO": np.array([[one] for one in data], dtype=np.object_)}


def raw(data: np.ndarray | bytes) -> dict[str, np.ndarray]:
    """Bytes of a stream's chunk."""
    return {"BYTES": np.frombuffer(data if isinstance(data, bytes) else data.tobytes(), dtype=np.uint8).reshape(1, -1)}


def g711(samples: np.ndarray, law: str, rate: int = 8000) -> bytes:
    """Samples at 16 kHz as raw G.711 at `rate`."""
    return sndfile(soxr.resample(samples, RATE, rate), rate, kind="RAW", subtype=law)


def result_of(answer: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(answer.as_numpy("RESULT")[0])
    return document


def play(wire: Wire, pieces: Sequence[dict[str, np.ndarray]], **parameters: Any) -> list[dict[str, Any]]:
    """Sends all pieces, END with the last; every RESULT."""
    stream = Stream(wire, **parameters)
    last = len(pieces) - 1
    answers = [
        stream.infer(piece, end=number == last, outputs=["TRANSCRIPTS", "RESULT"])
        for number, piece in enumerate(pieces)
    ]
    return [result_of(answer) for answer in answers]


# files


@pytest.mark.parametrize("name", ["M4A", "AAC", "WebM, Opus", "MP3", "WAV, ADPCM", "MP4, in fragments"])
def test_a_file_of_another_format_gives_the_same_text(grpc: Wire, name: str) -> None:
    assert word_distance(grpc.transcribe_file(FORMATS[name](SPEECH)), TEXT) <= 1


def test_what_is_known_of_a_file_comes_with_its_samples(wire: Wire) -> None:
    data = [FORMATS["M4A"](SPEECH), sndfile(SPEECH)]
    answer = wire.infer(DECODE, files(*data), ["WAV", "WAV_LENS", "AUDIO_INFO"])
    infos = [json.loads(info) for info in answer.as_numpy("AUDIO_INFO").reshape(-1)]
    assert answer.as_numpy("AUDIO_INFO").shape == (2, 1)
    assert [(info["format"], info["sample_rate"], info["channels"]) for info in infos] == [
        ("MP4", 44100, 2),
        ("WAV", RATE, 1),
    ]
    assert infos[1]["seconds"] == pytest.approx(len(SPEECH) / RATE, abs=0.001)
    assert "warnings" not in infos[1]


def test_files_without_sound_or_of_another_kind_fail_alone_in_words(wire: Wire) -> None:
    for data, words in (
        (silent_film(), "without an audio track"),
        (b"#EXTM3U\nfile:///etc/hostname\n", "no audio file that is known"),
        (FORMATS["M4A"](SPEECH)[:5000], "cannot be read"),
    ):
        error = refusal(lambda data=data: wire.transcribe_file(data))
        assert (status_of(error), code_of(error)) == ("INVALID_ARGUMENT", "INVALID_INPUT")
        assert words in error.message()
    assert wire.transcribe_file(sndfile(SPEECH)) == TEXT


def test_a_cut_off_file_says_so_in_its_result(wire: Wire) -> None:
    whole = sndfile(SPEECH)
    answer = wire.infer(TRANSCRIBE, files(whole[: len(whole) // 2], whole), ["TRANSCRIPTS", "RESULT"])
    cut_off, sound = (json.loads(document) for document in answer.as_numpy("RESULT"))
    (warning,) = cut_off["warnings"]
    assert f"promises {len(SPEECH) / RATE:.2f} s" in warning
    assert "warnings" not in sound
    assert sound["text"] == TEXT


def test_a_batch_that_takes_too_much_room_is_refused(grpc: Wire) -> None:
    quarter = sndfile(np.zeros(901 * 8000, dtype=np.int16), 8000, kind="FLAC")
    error = refusal(lambda: grpc.infer(DECODE, files(quarter, *[sndfile(SPEECH)] * 7), ["WAV_LENS"]))
    assert code_of(error) == "INVALID_INPUT"
    assert "one a request" in error.message()


# raw samples, channels


@pytest.mark.parametrize(
    ("parameters", "encode"),
    [
        ({"encoding": "pcm16"}, lambda samples: as_pcm(samples).astype("<i2").tobytes()),
        ({"encoding": "float32", "sample_rate": 16000}, lambda samples: samples.astype("<f4").tobytes()),
        ({"encoding": "mulaw", "sample_rate": "16000"}, lambda samples: g711(samples, "ULAW", RATE)),
        ({"encoding": "alaw"}, lambda samples: g711(samples, "ALAW")),
    ],
    ids=["pcm16", "float32", "mulaw", "alaw"],
)
def test_raw_audio_is_declared_by_parameters(wire: Wire, parameters: dict[str, Any], encode: Any) -> None:
    options = {**parameters, "word_timestamps": True}
    answer = wire.infer(TRANSCRIBE, files(encode(SPEECH)), ["TRANSCRIPTS", "RESULT"], options)
    assert word_distance(text_of(answer), TEXT) <= 1
    assert "words" in result_of(answer)["segments"][0]


def test_a_channel_is_heard_alone_when_it_is_asked_for(wire: Wire) -> None:
    other = np.resize(clip("command.flac"), len(SPEECH))
    stereo = np.stack([other, SPEECH], axis=1)
    inputs = files(sndfile(stereo))
    assert text_of(wire.infer(TRANSCRIBE, inputs, parameters={"channel": 1})) == TEXT
    options = {"encoding": "pcm16", "channels": 2, "channel": 1}
    assert text_of(wire.infer(TRANSCRIBE, files(as_pcm(stereo).tobytes()), parameters=options)) == TEXT
    error = refusal(lambda: wire.infer(TRANSCRIBE, inputs, parameters={"channel": 2}))
    assert (code_of(error), "2 channels, numbers 0 to 1" in error.message()) == ("INVALID_INPUT", True)


@pytest.mark.parametrize(
    ("model", "parameters", "words"),
    [
        (TRANSCRIBE, {"encoding": "g722"}, "choose one of pcm16, float32, mulaw, alaw"),
        (TRANSCRIBE, {"sample_rate": 8000}, "name its encoding"),
        (TRANSCRIBE, {"encoding": "mulaw", "sample_rate": 4000}, "sample_rate is 4000 Hz"),
        (TRANSCRIBE, {"channel": -1}, "count from 0"),
        (TRANSCRIBE, {"chanel": 1, "word_timestamps": True}, "unknown option chanel"),
        (DECODE, {"chanel": 1}, "unknown option chanel"),
        (OFFLINE, {"channel": 1}, "channel is an option of files"),
        (OFFLINE, {"sample_rate": 8000}, "sample_rate is an option of streams"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_honoured_is_refused(
    grpc: Wire, model: str, parameters: dict[str, Any], words: str
) -> None:
    inputs = inputs_of(SPEECH) if model == OFFLINE else files(sndfile(SPEECH))
    outputs = ["WAV_LENS"] if model == DECODE else ["TRANSCRIPTS"]
    error = refusal(lambda: grpc.infer(model, inputs, outputs, parameters))
    assert (status_of(error), code_of(error)) == ("INVALID_ARGUMENT", "INVALID_OPTION")
    assert words in error.message()


def test_raw_bytes_that_are_no_whole_frames_are_refused(wire: Wire) -> None:
    error = refusal(lambda: wire.infer(TRANSCRIBE, files(b"\0" * 31), parameters={"encoding": "pcm16"}))
    assert (code_of(error), "31 bytes" in error.message()) == ("INVALID_INPUT", True)


# streams


@pytest.mark.parametrize(
    ("parameters", "chunks"),
    [
        ({"encoding": "mulaw"}, lambda: [raw(piece) for piece in _bytes(g711(SPEECH, "ULAW"), 160)]),
        ({"encoding": "alaw", "sample_rate": 8000}, lambda: [raw(piece) for piece in _bytes(g711(SPEECH, "ALAW"))]),
        ({"encoding": "pcm16", "sample_rate": 48000}, lambda: [raw(piece) for piece in cut(as_pcm(_at(48000)), 9601)]),
        ({"encoding": "float32"}, lambda: [raw(piece) for piece in cut(SPEECH, 7000)]),
        ({"sample_rate": 44100}, lambda: [inputs_of(piece) for piece in cut(_at(44100), 4410, 1, 12345)]),
        ({"sample_rate": 8000}, lambda: [inputs_of(as_pcm(piece)) for piece in cut(_at(8000), 5120)]),
    ],
    ids=["mulaw", "alaw", "pcm16 at 48 kHz", "float32", "WAV at 44.1 kHz", "PCM at 8 kHz"],
)
def test_a_stream_comes_as_its_start_declares(grpc: Wire, parameters: dict[str, Any], chunks: Any) -> None:
    results = play(grpc, chunks(), **parameters)
    assert word_distance(results[-1]["text"], TEXT) <= 1
    assert results[-1]["audio_seconds"] == pytest.approx(len(SPEECH) / RATE, abs=0.001)
    seconds = [result["audio_seconds"] for result in results]
    assert seconds == sorted(seconds)
    assert not any("warnings" in result for result in results)


def _at(rate: int) -> np.ndarray:
    return soxr.resample(SPEECH, RATE, rate)


def _bytes(data: bytes, size: int = 5120) -> list[bytes]:
    return [data[begin : begin + size] for begin in range(0, len(data), size)]


def test_every_answer_of_a_resampled_stream_covers_what_was_sent(wire: Wire) -> None:
    pieces = cut(_at(8000), 5120)
    results = play(wire, [inputs_of(piece) for piece in pieces], sample_rate=8000)
    sent = np.cumsum([len(piece) for piece in pieces]) / 8000
    assert [result["audio_seconds"] for result in results] == pytest.approx(sent.tolist(), abs=0.001)


def test_a_refused_chunk_leaves_no_trace_in_the_resampler(wire: Wire) -> None:
    data = as_pcm(_at(8000)).tobytes()
    plain, disturbed = (Stream(wire, encoding="pcm16", sample_rate=8000) for _ in range(2))
    for piece in _bytes(data, 9000)[:-1]:
        text = text_of(plain.infer(raw(piece)))
        for bad, words in ((raw(piece[:-1]), "8999 bytes"), (inputs_of(SPEECH), "send that as BYTES")):
            error = refusal(lambda bad=bad: disturbed.infer(bad))
            assert (code_of(error), words in error.message()) == ("INVALID_INPUT", True)
        assert text_of(disturbed.infer(raw(piece))) == text
    last = raw(_bytes(data, 9000)[-1])
    assert text_of(disturbed.infer(last, end=True)) == text_of(plain.infer(last, end=True))


def test_a_stream_declared_in_any_way_ends_without_audio(wire: Wire) -> None:
    stream = Stream(wire, encoding="mulaw")
    stream.infer(raw(g711(SPEECH, "ULAW")))
    assert word_distance(text_of(stream.infer(inputs_of(NOTHING), end=True)), TEXT) <= 1


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"encoding": "opus"}, "choose one of pcm16"),
        ({"sample_rate": 7999}, "sample_rate is 7999 Hz"),
        ({"sample_rate": "fast"}, "whole number"),
        ({"channels": 2}, "channels is an option of files"),
    ],
    ids=str,
)
def test_a_declaration_that_cannot_be_honoured_opens_no_stream(
    server: RunningServer, wire: Wire, parameters: dict[str, Any], words: str
) -> None:
    error = refusal(lambda: Stream(wire, **parameters).infer(inputs_of(SPEECH), end=True))
    assert (code_of(error), words in error.message()) == ("INVALID_OPTION", True)
    assert eventually(lambda: streams_are_back(server))


def test_bytes_need_an_encoding_and_come_alone(wire: Wire) -> None:
    error = refusal(lambda: Stream(wire).infer(raw(b"\0" * 100), end=True))
    assert (code_of(error), "declared no encoding" in error.message()) == ("INVALID_INPUT", True)
    both = {**raw(b"\0" * 100), **inputs_of(SPEECH)}
    error = refusal(lambda: Stream(wire, encoding="pcm16").infer(both, end=True))
    assert (code_of(error), "WAV and BYTES" in error.message()) == ("INVALID_INPUT", True)


def test_streams_of_all_kinds_go_side_by_side_and_one_id_may_change_its_kind(wire: Wire) -> None:
    sequence_id = new_id()
    first = play(
        wire, [raw(piece) for piece in _bytes(g711(SPEECH, "ULAW"))], sequence_id=sequence_id, encoding="mulaw"
    )
    second = play(wire, [inputs_of(piece) for piece in cut(SPEECH, 10240)], sequence_id=sequence_id)
    assert word_distance(first[-1]["text"], TEXT) <= 1
    assert second[-1]["text"] == TEXT
    # A stream that is begun anew under its id forgets what was declared.
    stream = Stream(wire, sequence_id, encoding="alaw")
    stream.infer(raw(g711(SPEECH, "ALAW")))
    assert play(wire, [inputs_of(SPEECH)], sequence_id=sequence_id)[-1]["text"] == TEXT


# telephone audio in disguise


def test_telephone_audio_at_16_khz_earns_one_warning_everywhere(wire: Wire) -> None:
    disguised = telephone(SPEECH)
    results = play(wire, [inputs_of(piece) for piece in cut(disguised, 10240)])
    assert results[0].get("warnings", []) == []
    assert results[-1]["warnings"] == [NARROW_BAND]
    outputs = ["TRANSCRIPTS", "RESULT"]
    assert result_of(wire.infer(OFFLINE, inputs_of(as_pcm(disguised)), outputs))["warnings"] == [NARROW_BAND]
    assert result_of(wire.infer(TRANSCRIBE, files(sndfile(disguised)), outputs))["warnings"] == [NARROW_BAND]


def test_audio_that_says_that_it_is_of_the_telephone_earns_none(wire: Wire) -> None:
    outputs = ["TRANSCRIPTS", "RESULT"]
    assert "warnings" not in result_of(wire.infer(TRANSCRIBE, files(sndfile(_at(8000), 8000)), outputs))
    assert "warnings" not in result_of(wire.infer(OFFLINE, inputs_of(SPEECH), outputs))
    assert "warnings" not in play(wire, [inputs_of(_at(8000))], sample_rate=8000)[-1]
