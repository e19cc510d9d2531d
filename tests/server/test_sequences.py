"""The life of a sequence: begun, begun anew, ended, unknown, pipelined, refused and still usable."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    PROTOCOLS,
    RATE,
    STREAMING,
    Pipeline,
    Stream,
    Wire,
    all_clips,
    as_pcm,
    clip,
    code_of,
    counter,
    cut,
    eventually,
    inputs_of,
    new_id,
    noise,
    outcome_of,
    references,
    refusal,
    status_of,
    streamed,
    streams_are_back,
    text_of,
)


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Wire]:
    with Wire(server, request.param) as wire:
        yield wire


# beginning and end


def test_a_whole_clip_may_come_in_one_request(wire: Wire) -> None:
    for name in CLIPS:
        assert Stream(wire).send(clip(name), end=True) == references()[name]


def test_an_id_may_be_used_again_straight_after_its_end(wire: Wire) -> None:
    sequence_id = new_id()
    for name in (*CLIPS, *CLIPS):
        assert Stream(wire, sequence_id).play(cut(clip(name), CHUNK))[-1] == references()[name]


def test_a_chunk_without_samples_gets_the_text_so_far(wire: Wire) -> None:
    stream = Stream(wire)
    assert stream.send(NOTHING) == ""
    assert stream.send(NOTHING) == ""
    pieces = cut(clip("digits.flac"), CHUNK)
    for piece in pieces:
        text = stream.send(piece)
        assert stream.send(NOTHING) == text
        assert stream.send(NOTHING.astype(np.int16)) == text
    assert stream.end() == references()["digits.flac"]


def test_a_stream_without_any_sample_has_an_empty_text(wire: Wire) -> None:
    assert Stream(wire).send(NOTHING, end=True) == ""
    stream = Stream(wire)
    assert stream.send(NOTHING) == ""
    assert stream.end() == ""


@pytest.mark.parametrize("end", [False, True])
def test_a_chunk_that_was_never_started_is_refused(wire: Wire, end: bool) -> None:
    error = refusal(lambda: wire.infer(STREAMING, inputs_of(NOTHING), sequence_id=new_id(), sequence_end=end))
    assert status_of(error) == "INVALID_ARGUMENT"
    assert "START" in error.message()


def test_a_second_end_is_refused(wire: Wire) -> None:
    stream = Stream(wire)
    stream.play(cut(clip("command.flac"), CHUNK))
    error = refusal(stream.end)
    assert status_of(error) == "INVALID_ARGUMENT"
    assert "START" in error.message()


def test_an_id_of_0_is_refused(wire: Wire) -> None:
    error = refusal(lambda: wire.infer(STREAMING, inputs_of(NOTHING), sequence_id=0, sequence_start=True))
    assert status_of(error) == "INVALID_ARGUMENT"
    assert "correlation ID" in error.message()


def test_a_second_start_begins_anew(wire: Wire) -> None:
    sequence_id = new_id()
    first = Stream(wire, sequence_id)
    for piece in cut(clip("digits.flac"), CHUNK):
        first.send(piece)
    second = Stream(wire, sequence_id)
    assert second.play(cut(clip("command.flac"), CHUNK))[-1] == references()["command.flac"]


def test_a_second_start_answers_who_waits_and_begins_anew(server: RunningServer) -> None:
    sequence_id = new_id()
    long = as_pcm(np.tile(all_clips(), 8))
    with Pipeline(server) as pipeline:
        pipeline.send(sequence_id, inputs_of(long), start=True)
        pipeline.send(sequence_id, inputs_of(long))
        pipeline.play(sequence_id, cut(clip("command.flac"), CHUNK))
        old, waiting, *answers = pipeline.answers()
    # Either was answered before, or told that its stream is gone.
    for answer in (old, waiting):
        assert not isinstance(answer, Exception) or code_of(answer) == "STREAM_RESTARTED"
    assert isinstance(waiting, Exception)
    assert text_of(answers[-1]) == references()["command.flac"]
    assert eventually(lambda: streams_are_back(server))


# pipelining


def test_a_pipelining_client_gets_one_answer_a_chunk_in_order(server: RunningServer) -> None:
    samples = all_clips()
    expected = streamed(server, cut(samples, CHUNK))
    for sizes in ((1600,), (CHUNK,), (7, 400, 3200, 0, 25000)):
        pieces = cut(samples, *sizes)
        with Pipeline(server) as pipeline:
            pipeline.play(new_id(), pieces)
            answers = pipeline.answers()
        assert [answer.get_response().id for answer in answers] == [str(number) for number in range(len(pieces))]
        texts = [text_of(answer) for answer in answers]
        assert texts[-1] == expected
        # Greedy text only grows.
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


def test_pipelined_answers_tell_of_all_the_audio_sent_so_far(server: RunningServer) -> None:
    """A request is answered when its own audio has been decoded, whatever has come after it."""
    pieces = cut(all_clips(), CHUNK)
    with Wire(server) as wire:
        one_by_one = Stream(wire).play(pieces)
    with Pipeline(server) as pipeline:
        pipeline.play(new_id(), pieces)
        pipelined = [text_of(answer) for answer in pipeline.answers()]
    assert all(text.startswith(least) for text, least in zip(pipelined, one_by_one))


def test_an_id_may_be_used_again_before_its_end_is_answered(server: RunningServer) -> None:
    """Every chunk but the last is answered before END: the server itself keeps no order between two sequences."""
    sequence_id = new_id()
    names = CLIPS * 3
    texts = []
    with Pipeline(server) as pipeline:
        for number, name in enumerate(names):
            *pieces, last = cut(clip(name), CHUNK)
            for index, piece in enumerate(pieces):
                pipeline.send(sequence_id, inputs_of(piece), start=index == 0)
            if number:
                texts.append(text_of(pipeline.next()))
            for _ in pieces:
                assert references()[name].startswith(text_of(pipeline.next()))
            pipeline.send(sequence_id, inputs_of(last), end=True)
        texts.append(text_of(pipeline.next()))
    assert texts == [references()[name] for name in names]


def test_many_one_request_streams_under_one_id(server: RunningServer) -> None:
    sequence_id = new_id()
    with Pipeline(server) as pipeline:
        for name in CLIPS * 5:
            pipeline.send(sequence_id, inputs_of(clip(name)), start=True, end=True)
        assert [text_of(answer) for answer in pipeline.answers()] == [references()[name] for name in CLIPS * 5]


# short, silent and odd audio


@pytest.mark.parametrize("length", [0, 1, 159, 399, 400, 401])
def test_very_short_audio_has_an_empty_text(wire: Wire, length: int) -> None:
    samples = noise(1, -20)[:length]
    assert Stream(wire).send(samples, end=True) == ""
    stream = Stream(wire)
    assert stream.send(samples) == ""
    assert stream.end() == ""
    assert wire.transcribe(samples) == ""
    assert wire.transcribe(as_pcm(samples)) == ""


def test_silence_and_faint_noise_have_an_empty_text(wire: Wire) -> None:
    for samples in (np.zeros(10 * RATE, dtype=np.float32), noise(10, -60)):
        assert set(Stream(wire).play(cut(samples, CHUNK))) == {""}
        assert wire.transcribe(samples) == ""


# refused chunks


def spoilt(value: float) -> np.ndarray:
    samples = clip("digits.flac")[:CHUNK].copy()
    samples[4321] = value
    return samples


SPEECH = clip("digits.flac")[:CHUNK]
BAD_CHUNKS: dict[str, dict[str, np.ndarray]] = {
    "nan": inputs_of(spoilt(np.nan)),
    "infinity": inputs_of(spoilt(-np.inf)),
    "1e38": inputs_of(spoilt(1e38)),
    "int16 values as float": inputs_of(SPEECH * 32768),
    "nan in the last sample": inputs_of(np.append(SPEECH, np.float32(np.nan))),
    "wav and pcm": {**inputs_of(SPEECH), **inputs_of(as_pcm(SPEECH))},
    "neither": {"WAV_LENS": np.array([[5]], dtype=np.int32)},
    "negative length": inputs_of(SPEECH, -1),
    "length above the chunk": inputs_of(SPEECH, CHUNK + 1),
}


@pytest.mark.parametrize("bad", list(BAD_CHUNKS))
def test_a_refused_chunk_consumes_nothing_and_leaves_the_stream_usable(wire: Wire, bad: str) -> None:
    pieces = cut(clip("digits.flac"), CHUNK)
    undisturbed = Stream(wire).play(pieces)
    stream = Stream(wire)
    texts = []
    for number, piece in enumerate(pieces):
        if number:
            error = refusal(lambda: stream.infer(BAD_CHUNKS[bad]))
            assert status_of(error) == "INVALID_ARGUMENT"
            assert code_of(error) == "INVALID_INPUT"
        texts.append(stream.send(piece, end=number == len(pieces) - 1))
    assert texts == undisturbed


@pytest.mark.parametrize("bad", ["nan", "wav and pcm", "negative length"])
def test_a_start_with_refused_audio_opens_a_stream_that_is_usable(wire: Wire, bad: str) -> None:
    stream = Stream(wire)
    assert code_of(refusal(lambda: stream.infer(BAD_CHUNKS[bad]))) == "INVALID_INPUT"
    assert stream.send(clip("digits.flac"), end=True) == references()["digits.flac"]


def test_a_refused_end_frees_the_stream(server: RunningServer, wire: Wire) -> None:
    stream = Stream(wire)
    stream.send(SPEECH)
    assert code_of(refusal(lambda: stream.infer(BAD_CHUNKS["nan"], end=True))) == "INVALID_INPUT"
    assert status_of(refusal(stream.end)) == "INVALID_ARGUMENT"
    assert code_of(refusal(lambda: Stream(wire).infer(BAD_CHUNKS["nan"], end=True))) == "INVALID_INPUT"
    assert eventually(lambda: streams_are_back(server))


def test_a_refused_chunk_touches_no_neighbour(server: RunningServer) -> None:
    good = {new_id(): name for name in CLIPS}
    bad = new_id()
    with Pipeline(server) as pipeline:
        order: list[int] = []
        pieces = {sequence_id: cut(clip(name), CHUNK) for sequence_id, name in good.items()}
        pipeline.send(bad, inputs_of(SPEECH), start=True)
        order.append(bad)
        for turn in range(max(map(len, pieces.values()))):
            for sequence_id, own in pieces.items():
                if turn < len(own):
                    last = turn == len(own) - 1
                    pipeline.send(sequence_id, inputs_of(own[turn]), start=turn == 0, end=last)
                    order.append(sequence_id)
            pipeline.send(bad, BAD_CHUNKS["nan"])
            order.append(bad)
        pipeline.send(bad, inputs_of(NOTHING), end=True)
        order.append(bad)
        answers = pipeline.answers()
    finals: dict[int, Any] = dict(zip(order, answers))
    assert {name: text_of(finals[sequence_id]) for sequence_id, name in good.items()} == references()
    refused = [answer for sequence_id, answer in zip(order, answers) if isinstance(answer, Exception)]
    assert len(refused) == max(map(len, pieces.values()))


WRONG_TENSORS: dict[str, dict[str, np.ndarray]] = {
    "float64": {"WAV": SPEECH[None].astype(np.float64)},
    "float16": {"WAV": SPEECH[None].astype(np.float16)},
    "int32 samples": {"PCM": as_pcm(SPEECH)[None].astype(np.int32)},
    "int64 lengths": {**inputs_of(SPEECH), "WAV_LENS": np.array([[CHUNK]], dtype=np.int64)},
    "one dimension": {"WAV": SPEECH},
    "three dimensions": {"WAV": SPEECH.reshape(1, 2, -1)},
    "two rows": {"WAV": SPEECH.reshape(2, -1)},
    "two lengths": {**inputs_of(SPEECH), "WAV_LENS": np.array([[5, 6]], dtype=np.int32)},
    "another name": {"SAMPLES": SPEECH[None]},
    "nothing": {},
}


@pytest.mark.parametrize("wrong", list(WRONG_TENSORS))
def test_tensors_of_wrong_type_or_shape_are_refused_without_harm(wire: Wire, wrong: str) -> None:
    stream = Stream(wire)
    stream.send(SPEECH)
    error = outcome_of(lambda: stream.infer(WRONG_TENSORS[wrong]))
    assert isinstance(error, Exception)
    assert status_of(error) == "INVALID_ARGUMENT"
    assert stream.send(clip("digits.flac")[CHUNK:], end=True) == references()["digits.flac"]


# options


def test_a_stream_may_ask_for_a_smaller_chunk(wire: Wire) -> None:
    pieces = cut(clip("digits.flac"), 5120)
    small = Stream(wire, chunk_size=8).play(pieces)
    assert small[-1] == references()["digits.flac"]
    # Its text comes after 320 ms of audio, not 640.
    assert small != Stream(wire).play(pieces)
    assert Stream(wire, chunk_size="8").play(pieces) == small


@pytest.mark.parametrize("value", [0, -1, 17, 99, "x", "", 8.5, True], ids=repr)
def test_an_impossible_chunk_size_is_refused_and_opens_no_stream(wire: Wire, value: Any) -> None:
    assert_start_is_refused(wire, "chunk_size", chunk_size=value)


def test_an_unknown_option_is_refused_by_name_and_opens_no_stream(wire: Wire) -> None:
    message = assert_start_is_refused(wire, "n_bset", n_bset=3, chunk_size=8)
    assert "chunk_size" in message.partition("valid")[2]


def assert_start_is_refused(wire: Wire, named: str, **options: Any) -> str:
    stream = Stream(wire, **options)
    error = refusal(lambda: stream.send(SPEECH))
    assert status_of(error) == "INVALID_ARGUMENT"
    assert code_of(error) == "INVALID_OPTION"
    assert named in error.message()
    assert code_of(refusal(lambda: stream.send(SPEECH))) == "UNKNOWN_SEQUENCE"
    assert code_of(refusal(stream.end)) == "UNKNOWN_SEQUENCE"
    # The id itself is as good as new.
    assert Stream(wire, stream.id).send(clip("digits.flac"), end=True) == references()["digits.flac"]
    return str(error.message())


def test_a_refused_start_may_be_sent_again_under_its_id(wire: Wire) -> None:
    stream = Stream(wire, chunk_size=99)
    refusal(lambda: stream.send(SPEECH))
    again = Stream(wire, stream.id)
    assert again.play(cut(clip("digits.flac"), CHUNK))[-1] == references()["digits.flac"]


def test_options_after_the_start_are_refused_and_the_stream_stays_usable(wire: Wire) -> None:
    stream = Stream(wire)
    stream.send(SPEECH)
    error = refusal(
        lambda: wire.infer(STREAMING, inputs_of(SPEECH), parameters={"chunk_size": 8}, sequence_id=stream.id)
    )
    assert code_of(error) == "INVALID_OPTION"
    assert "chunk_size" in error.message()
    assert "START" in error.message()
    assert stream.send(clip("digits.flac")[CHUNK:], end=True) == references()["digits.flac"]


def test_no_stream_was_left_open(server: RunningServer) -> None:
    assert eventually(lambda: streams_are_back(server))
    assert counter(server, "sequences_started") >= counter(server, "sequences_finished") > 0
    assert counter(server, "sequences_failed") == 0
