"""What existing clients rely on: names, types and shapes on the wire, correlation ids, the JSON of RESULT."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import soxr

from oasr_backend.serve import RunningServer
from tests.server.received import ReceivedResults
from tests.server.support import (
    CHUNK,
    CLIPS,
    DECODE,
    NOTHING,
    OFFLINE,
    PROTOCOLS,
    RATE,
    STREAMING,
    TRANSCRIBE,
    Stream,
    Wire,
    as_pcm,
    clip,
    clip_path,
    cut,
    encoded,
    inputs_of,
    new_id,
    references,
    word_distance,
)


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Wire]:
    with Wire(server, request.param) as wire:
        yield wire


def file_tensor(*names: str) -> dict[str, np.ndarray]:
    return {"AUDIO": np.array([[clip_path(name).read_bytes()] for name in names], dtype=np.object_)}


def padded(*clips: np.ndarray) -> dict[str, np.ndarray]:
    """Clips of unlike length as one batch, as offline clients send them."""
    wav = np.zeros((len(clips), max(map(len, clips))), dtype=np.float32)
    for row, samples in zip(wav, clips):
        row[: len(samples)] = samples
    return {"WAV": wav, "WAV_LENS": np.array([[len(samples)] for samples in clips], dtype=np.int32)}


def result_of(answer: Any) -> dict[str, Any]:
    raw = answer.as_numpy("RESULT")
    assert raw.shape == (1,)
    document: dict[str, Any] = json.loads(raw[0])
    return document


# shapes


def test_every_answer_of_a_stream_is_one_string_of_shape_1(wire: Wire) -> None:
    stream = Stream(wire)
    pieces = cut(clip("digits.flac"), CHUNK)
    for number, piece in enumerate(pieces):
        answer = stream.infer(inputs_of(piece), end=number == len(pieces) - 1)
        transcripts = answer.as_numpy("TRANSCRIPTS")
        assert transcripts.shape == (1,)
        assert isinstance(transcripts[0], bytes)
    assert transcripts[0].decode() == references()["digits.flac"]


def test_an_offline_batch_answers_one_text_a_row(wire: Wire) -> None:
    clips = [clip(name) for name in CLIPS]
    answer = wire.infer(OFFLINE, padded(*clips))
    assert answer.as_numpy("TRANSCRIPTS").shape == (len(clips),)
    assert [text.decode() for text in answer.as_numpy("TRANSCRIPTS")] == [wire.transcribe(samples) for samples in clips]


def test_a_batch_of_files_answers_one_text_a_row_through_the_ensemble(wire: Wire) -> None:
    answer = wire.infer(TRANSCRIBE, file_tensor(*CLIPS), outputs=("TRANSCRIPTS", "RESULT"))
    assert answer.as_numpy("TRANSCRIPTS").shape == answer.as_numpy("RESULT").shape == (len(CLIPS),)
    texts = [text.decode() for text in answer.as_numpy("TRANSCRIPTS")]
    assert texts == [wire.transcribe_file(clip_path(name).read_bytes()) for name in CLIPS]
    assert [json.loads(document)["text"] for document in answer.as_numpy("RESULT")] == texts


def test_decoded_files_come_padded_with_their_true_lengths(wire: Wire) -> None:
    answer = wire.infer(DECODE, file_tensor(*CLIPS), outputs=("WAV", "WAV_LENS"))
    lengths = [len(clip(name)) for name in CLIPS]
    assert answer.as_numpy("WAV_LENS").tolist() == [[length] for length in lengths]
    assert answer.as_numpy("WAV").shape == (len(CLIPS), max(lengths))
    for row, name in zip(answer.as_numpy("WAV"), CLIPS):
        np.testing.assert_array_equal(row[: len(clip(name))], clip(name))
        assert not row[len(clip(name)) :].any()


def test_plain_json_over_http_works_without_a_client_library(server: RunningServer) -> None:
    samples = as_pcm(clip("command.flac"))
    body = {
        "inputs": [{"name": "PCM", "datatype": "INT16", "shape": [1, len(samples)], "data": samples.tolist()}],
        "outputs": [{"name": "TRANSCRIPTS"}],
    }
    url = f"http://{server.http_url}/v2/models/{OFFLINE}/infer"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Connection": "close"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        (output,) = json.load(answer)["outputs"]
    assert output["shape"] == [1]
    assert output["data"] == [references()["command.flac"]]


# audio in


def test_float_and_int16_samples_give_the_same_text(wire: Wire) -> None:
    samples = clip("number.flac")
    texts = {
        Stream(wire).play(cut(samples, CHUNK))[-1],
        Stream(wire).play(cut(as_pcm(samples), CHUNK))[-1],
        wire.transcribe(samples),
        wire.transcribe(as_pcm(samples)),
    }
    assert texts == {references()["number.flac"]}


def test_one_stream_may_mix_float_and_int16(wire: Wire) -> None:
    stream = Stream(wire)
    samples = clip("number.flac")
    stream.send(samples[:CHUNK])
    stream.send(as_pcm(samples[CHUNK : 2 * CHUNK]))
    assert stream.send(samples[2 * CHUNK :], end=True) == references()["number.flac"]


@pytest.mark.parametrize("kind", ["float", "int16"])
def test_wav_lens_cuts_off_what_only_fills_the_chunk(wire: Wire, kind: str) -> None:
    samples = as_pcm(clip("digits.flac")) if kind == "int16" else clip("digits.flac")
    # What fills up is speech, so that reading it would show.
    filler = np.tile(samples, 2)
    plain = Stream(wire).play(cut(samples[:34000], 6000))
    stream = Stream(wire)
    texts: list[str] = []
    for piece in cut(samples[:34000], 6000):
        chunk = np.concatenate([piece, filler[: 9000 - len(piece)]])
        texts.append(stream.send(chunk, length=len(piece), end=len(texts) == len(plain) - 1))
    assert texts == plain


def test_wav_lens_cuts_an_offline_clip(wire: Wire) -> None:
    samples = clip("digits.flac")
    both = np.concatenate([samples, clip("command.flac")])
    answer = wire.infer(OFFLINE, inputs_of(both, len(samples)))
    assert answer.as_numpy("TRANSCRIPTS")[0].decode() == references()["digits.flac"]


def test_a_length_of_0_leaves_nothing(wire: Wire) -> None:
    stream = Stream(wire)
    assert stream.send(clip("digits.flac"), length=0) == ""
    assert stream.end() == ""


# a client written for other servers


@pytest.mark.parametrize("name", CLIPS)
def test_a_drop_in_client_gets_the_text(wire: Wire, name: str) -> None:
    """First chunk 690 ms, then 640 ms, the last padded with zeros to full length, one id reused for all."""
    samples = clip(name)
    pieces = [samples[:11040], *cut(samples[11040:], 10240)]
    for _ in range(2):
        for number, piece in enumerate(pieces):
            size = 11040 if number == 0 else 10240
            chunk = np.zeros((1, size), dtype=np.float32)
            chunk[0, : len(piece)] = piece
            result = wire.infer(
                STREAMING,
                {"WAV": chunk, "WAV_LENS": np.array([[len(piece)]], dtype=np.int32)},
                sequence_id=10086,
                sequence_start=number == 0,
                sequence_end=number == len(pieces) - 1,
                request_id=str(number),
            )
        assert b" ".join(result.as_numpy("TRANSCRIPTS")).decode("utf-8") == references()[name]
        assert result.as_numpy("TRANSCRIPTS")[0].decode() == references()[name]


def test_a_drop_in_client_gets_the_text_of_a_clip_padded_to_10_seconds(wire: Wire) -> None:
    samples = clip("digits.flac")
    wav = np.zeros((1, 10 * RATE), dtype=np.float32)
    wav[0, : len(samples)] = samples
    lengths = np.array([[len(samples)]], dtype=np.int32)
    result = wire.infer(OFFLINE, {"WAV": wav, "WAV_LENS": lengths}, request_id="10086")
    assert b" ".join(result.as_numpy("TRANSCRIPTS")).decode() == references()["digits.flac"]


# RESULT


def test_result_comes_only_when_asked_for(wire: Wire) -> None:
    stream = Stream(wire)
    for outputs in (["TRANSCRIPTS"], ["RESULT"], ["TRANSCRIPTS", "RESULT"]):
        answer = stream.infer(inputs_of(clip("digits.flac")[:CHUNK]), outputs=outputs)
        assert [name for name in ("TRANSCRIPTS", "RESULT") if answer.get_output(name) is not None] == outputs
    # Whoever names none gets all.
    answer = stream.infer(inputs_of(NOTHING), end=True, outputs=None)
    assert answer.get_output("TRANSCRIPTS") is not None
    assert result_of(answer)["is_final"] is True


def test_result_of_a_stream_says_what_is_known_so_far(wire: Wire) -> None:
    stream = Stream(wire)
    samples = clip("digits.flac")
    sent = 0
    documents = []
    for piece in cut(samples, CHUNK):
        sent += len(piece)
        last = sent == len(samples)
        answer = stream.infer(inputs_of(piece), outputs=["TRANSCRIPTS", "RESULT"], end=last)
        document = result_of(answer)
        assert document["text"] == answer.as_numpy("TRANSCRIPTS")[0].decode()
        assert document["is_final"] is last
        assert document["audio_seconds"] == pytest.approx(sent / RATE, abs=0.001)
        assert ("finish_reason" in document) == last
        documents.append(document)
    assert documents[0]["segments"] == []
    for document in documents:
        assert set(document) <= {"text", "is_final", "segments", "audio_seconds", "finish_reason"}
        for segment in document["segments"]:
            assert set(segment) == {"id", "text", "start", "end", "is_final", "confidence"}
            assert segment["id"] == 0
            assert segment["text"] == document["text"]
            assert 0 <= segment["start"] < segment["end"] <= document["audio_seconds"]
            assert segment["is_final"] is document["is_final"]
            assert 0 < segment["confidence"] <= 1
    assert len(documents[-1]["segments"]) == 1
    assert documents[-1]["text"] == references()["digits.flac"]
    assert documents[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_result_that_comes_is_checked(
    server: RunningServer, protocol: str, received_results: ReceivedResults
) -> None:
    before = received_results.checked
    with Wire(server, protocol) as wire:
        stream = Stream(wire)
        stream.infer(inputs_of(clip("digits.flac")), outputs=["RESULT"])
        stream.infer(inputs_of(NOTHING), outputs=None, end=True)
        wire.infer(TRANSCRIBE, file_tensor(*CLIPS), outputs=["RESULT"])
        assert received_results.checked == before + 2 + len(CLIPS)
        # It does find fault.
        with mock.patch("tests.server.received.check_result", side_effect=AssertionError("injected")):
            wire.infer(OFFLINE, inputs_of(clip("digits.flac")), outputs=["RESULT"])
    assert len(received_results.errors) == 1 and "injected" in received_results.errors[0]
    received_results.errors.clear()


def test_without_partials_answers_before_the_last_are_empty(wire: Wire) -> None:
    pieces = cut(clip("digits.flac"), CHUNK)
    stream = Stream(wire, partials=False)
    documents = []
    for number, piece in enumerate(pieces):
        answer = stream.infer(inputs_of(piece), outputs=None, end=number == len(pieces) - 1)
        documents.append(result_of(answer))
        assert documents[-1]["text"] == answer.as_numpy("TRANSCRIPTS")[0].decode()
    assert [document["text"] for document in documents] == [""] * (len(pieces) - 1) + [references()["digits.flac"]]
    assert [document["audio_seconds"] for document in documents[:-1]] == [
        pytest.approx(0.64 * number) for number in range(1, len(pieces))
    ]
    plain = Stream(wire)
    plain.send(clip("digits.flac"))
    assert result_of(plain.infer(inputs_of(NOTHING), outputs=["RESULT"], end=True)) == documents[-1]


def test_result_of_a_clip_is_final(wire: Wire) -> None:
    answer = wire.infer(OFFLINE, inputs_of(clip("command.flac")), outputs=["TRANSCRIPTS", "RESULT"])
    document = result_of(answer)
    assert document["text"] == references()["command.flac"]
    assert document["is_final"] is True
    assert document["finish_reason"] == "stop"
    assert document["audio_seconds"] == pytest.approx(len(clip("command.flac")) / RATE, abs=0.001)
    (segment,) = document["segments"]
    assert 0 <= segment["start"] < segment["end"] <= document["audio_seconds"]
    assert segment["is_final"] is True


# correlation ids


@pytest.mark.parametrize("sequence_id", [1, 2**63 - 1, "a", "x" * 128, "naïve 流 id"], ids=repr)
def test_every_correlation_id_works(wire: Wire, sequence_id: int | str) -> None:
    assert Stream(wire, sequence_id).play(cut(clip("command.flac"), CHUNK))[-1] == references()["command.flac"]


def test_http_carries_ids_of_64_bits(server: RunningServer) -> None:
    with Wire(server, "http") as wire:
        for sequence_id in (2**63, 2**64 - 1):
            assert Stream(wire, sequence_id).play(cut(clip("command.flac"), CHUNK))[-1] == references()["command.flac"]


def test_a_number_and_its_digits_are_different_ids(wire: Wire) -> None:
    number = new_id()
    digits, command = Stream(wire, number), Stream(wire, str(number))
    texts = {}
    for name, stream in (("digits.flac", digits), ("command.flac", command)):
        stream.send(clip(name)[:20000])
    for name, stream in (("digits.flac", digits), ("command.flac", command)):
        texts[name] = stream.send(clip(name)[20000:], end=True)
    assert texts == {name: references()[name] for name in texts}


def test_string_ids_that_begin_alike_are_different_ids(wire: Wire) -> None:
    digits, command = Stream(wire, "conference-room-1"), Stream(wire, "conference-room-2")
    digits.send(clip("digits.flac")[:20000])
    command.send(clip("command.flac")[:20000])
    assert digits.send(clip("digits.flac")[20000:], end=True) == references()["digits.flac"]
    assert command.send(clip("command.flac")[20000:], end=True) == references()["command.flac"]


# whole clips


@pytest.mark.parametrize("name", CLIPS)
def test_the_bundled_clips_are_understood_either_way(wire: Wire, name: str) -> None:
    live = Stream(wire).play(cut(clip(name), CHUNK))[-1]
    whole = wire.transcribe_file(clip_path(name).read_bytes())
    assert word_distance(live, references()[name]) <= 2
    assert word_distance(whole, references()[name]) <= 2


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_a_stereo_file_of_another_rate_gives_the_same_text(wire: Wire, rate: int) -> None:
    mono = soxr.resample(clip("number.flac"), RATE, rate)
    text = wire.transcribe_file(encoded(np.stack([mono, mono], axis=1), rate))
    assert word_distance(text, references()["number.flac"]) <= 2


@pytest.mark.parametrize(
    ("kind", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("WAV", "ULAW"), ("WAV", "PCM_24"), ("AIFF", "FLOAT")]
)
def test_a_file_of_another_format_gives_the_same_text(wire: Wire, kind: str, subtype: str) -> None:
    text = wire.transcribe_file(encoded(clip("digits.flac"), kind=kind, subtype=subtype))
    assert word_distance(text, references()["digits.flac"]) <= 1


def test_both_channels_of_a_file_are_heard(wire: Wire) -> None:
    left = np.concatenate([clip("digits.flac"), np.zeros(len(clip("command.flac")), dtype=np.float32)])
    right = np.concatenate([np.zeros(len(clip("digits.flac")), dtype=np.float32), clip("command.flac")])
    text = wire.transcribe_file(encoded(np.stack([left, right], axis=1)))
    assert word_distance(text, f"{references()['digits.flac']} {references()['command.flac']}") <= 2
