"""Encoded files: what cannot be read fails alone, in words."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from tests.server.support import (
    CLIPS,
    DECODE,
    OFFLINE,
    PROTOCOLS,
    RATE,
    TRANSCRIBE,
    Wire,
    clip,
    clip_path,
    code_of,
    encoded,
    inputs_of,
    references,
    refusal,
    status_of,
    together,
)


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, server: RunningServer) -> Iterator[Wire]:
    with Wire(server, request.param) as wire:
        yield wire


FLAC = clip_path("digits.flac").read_bytes()
WAV = encoded(clip("command.flac"))
BAD_FILES = {
    "empty": b"",
    "text": b"this is no audio at all\n" * 40,
    "first bytes of a FLAC file": FLAC[:20],
    "FLAC header without frames": FLAC[:60],
    "first bytes of a WAV file": WAV[:30],
    "random bytes": np.random.default_rng(0).bytes(5000),
    "not a number": encoded(np.array([0.5, np.nan, 0.5], dtype=np.float32), subtype="FLOAT"),
}


def file_tensor(*files: bytes) -> dict[str, np.ndarray]:
    return {"AUDIO": np.array([[data] for data in files], dtype=np.object_)}


@pytest.mark.parametrize("model", [DECODE, TRANSCRIBE])
@pytest.mark.parametrize("bad", list(BAD_FILES))
def test_bytes_that_are_no_audio_are_refused_in_words(wire: Wire, model: str, bad: str) -> None:
    outputs = ("WAV",) if model == DECODE else ("TRANSCRIPTS",)
    error = refusal(lambda: wire.infer(model, file_tensor(BAD_FILES[bad]), outputs))
    assert status_of(error) == "INVALID_ARGUMENT"
    assert code_of(error) == "INVALID_INPUT"


def test_a_bad_file_in_a_batch_is_named(wire: Wire) -> None:
    error = refusal(lambda: wire.infer(TRANSCRIBE, file_tensor(FLAC, BAD_FILES["text"], WAV)))
    assert code_of(error) == "INVALID_INPUT"
    assert "file 1" in error.message()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bad_files_fail_alone_among_good_ones(server: RunningServer, protocol: str) -> None:
    files: list[tuple[bytes, str | None]] = []
    for bad in BAD_FILES.values():
        for name in CLIPS:
            files += [(clip_path(name).read_bytes(), references()[name]), (bad, None)]
    gate = threading.Barrier(len(files))

    def transcribe(one: tuple[bytes, str | None]) -> str | None:
        data, expected = one
        with Wire(server, protocol) as wire:
            gate.wait(60)
            if expected is not None:
                return wire.transcribe_file(data)
            assert code_of(refusal(lambda: wire.transcribe_file(data))) == "INVALID_INPUT"
            return None

    assert together(transcribe, files) == [expected for _, expected in files]


def test_a_cut_off_file_gives_what_it_holds_or_is_refused(wire: Wire) -> None:
    """A recording whose writer was killed."""
    text = wire.transcribe_file(WAV[: len(WAV) * 3 // 4])
    assert references()["command.flac"].startswith(text[: len("ENTER")])
    outcome = wire.transcribe_file(encoded(clip("command.flac"))[:44])
    assert outcome == ""


def test_a_file_without_samples_has_an_empty_text(wire: Wire) -> None:
    assert wire.transcribe_file(encoded(np.zeros(0, dtype=np.float32))) == ""
    assert wire.transcribe_file(encoded(np.zeros(100, dtype=np.float32))) == ""


def test_audio_that_is_too_long_is_refused_in_words(wire: Wire) -> None:
    long_file = encoded(np.zeros(7201 * 8000, dtype=np.int16), 8000, kind="FLAC")
    error = refusal(lambda: wire.transcribe_file(long_file))
    assert status_of(error) == "INVALID_ARGUMENT"
    assert code_of(error) == "INVALID_INPUT"
    assert "7200" in error.message()
    assert wire.transcribe_file(FLAC) == references()["digits.flac"]


def test_a_recording_of_minutes_is_answered_whole(wire: Wire) -> None:
    """Cut at its pauses, decoded in parallel, joined."""
    pause = np.zeros(RATE // 2, dtype=np.int16)
    names = ["digits.flac", "command.flac", "number.flac"] * 8
    recording = np.concatenate([part for name in names for part in (clip(name), pause)])
    assert len(recording) > 60 * RATE
    text = " ".join(references()[name] for name in names)
    assert wire.transcribe(recording) == text
    assert wire.transcribe_file(encoded(recording)) == text


def test_a_bad_row_refuses_its_request_alone(wire: Wire) -> None:
    rows = np.zeros((2, 20000), dtype=np.float32)
    rows[1, 7] = np.inf
    error = refusal(lambda: wire.infer(OFFLINE, {"WAV": rows}))
    assert code_of(error) == "INVALID_INPUT"
    assert "clip 1" in error.message()
    both = {**inputs_of(clip("digits.flac")), "PCM": np.zeros((1, 5), dtype=np.int16)}
    assert code_of(refusal(lambda: wire.infer(OFFLINE, both))) == "INVALID_INPUT"
    assert code_of(refusal(lambda: wire.infer(OFFLINE, inputs_of(clip("digits.flac"), -1)))) == "INVALID_INPUT"
    assert wire.transcribe(clip("digits.flac")) == references()["digits.flac"]


@pytest.mark.parametrize("model", [OFFLINE, TRANSCRIBE])
def test_an_unknown_option_of_a_clip_is_refused_by_name(wire: Wire, model: str) -> None:
    inputs = file_tensor(FLAC) if model == TRANSCRIBE else inputs_of(clip("digits.flac"))
    error = refusal(lambda: wire.infer(model, inputs, parameters={"chunk_size": 8}))
    assert code_of(error) == "INVALID_OPTION"
    assert "chunk_size" in error.message()
