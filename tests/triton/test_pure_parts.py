"""Options, tensors, results and threads of the adapter, without a server."""

import json
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest

from oasr_backend.audio.files import DecodedAudio
from oasr_backend.decode.words import TimedWord
from oasr_backend.engine import RequestOutput
from oasr_backend.engine.request import SpeechBoundary
from oasr_backend.engine.transcript import Alternative, Endpoint, Segment
from oasr_backend.triton.audio_info import info_json, read_warnings
from oasr_backend.triton.engine_loop import EngineLoop, Watchdog
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.options import given_names, parse_options
from oasr_backend.triton.request_options import CLIP_OPTIONS, FILE_OPTIONS, ClipOptions, FileOptions
from oasr_backend.triton.results import result_json
from oasr_backend.triton.sequences import StreamOptions
from oasr_backend.triton.tensors import read_rows

PATIENCE_S = 20.0


def test_options_are_parsed_and_the_servers_own_parameters_passed_over() -> None:
    assert (
        parse_options('{"chunk_size": "8", "triton_enable_empty_final_response": true}', StreamOptions).chunk_size == 8
    )
    assert parse_options("", StreamOptions) == StreamOptions()
    assert given_names('{"b": 1, "a": 2, "triton_x": 3}') == ["a", "b"]


@pytest.mark.parametrize(("value", "expected"), [("true", True), ('"false"', False), ("1", True), ('"0"', False)])
def test_a_switch_may_be_spelled_in_several_ways(value: str, expected: bool) -> None:
    assert parse_options(f'{{"word_timestamps": {value}}}', StreamOptions).word_timestamps is expected


@pytest.mark.parametrize("value", ['"yes"', "2", "null", "1.5"])
def test_a_switch_that_is_neither_is_refused(value: str) -> None:
    with pytest.raises(Refusal, match="word_timestamps"):
        parse_options(f'{{"word_timestamps": {value}}}', StreamOptions)


@pytest.mark.parametrize("value", ['"eight"', "true", "1.5", "null"])
def test_an_option_of_the_wrong_type_is_refused_by_name(value: str) -> None:
    with pytest.raises(Refusal, match="chunk_size"):
        parse_options(f'{{"chunk_size": {value}}}', StreamOptions)


def test_an_unknown_option_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(Refusal, match="unknown option hotword; valid here: decode_method, n_best, ") as caught:
        parse_options('{"hotword": 1}', StreamOptions)
    assert caught.value.status == "INVALID_ARG"
    assert all(field.name in str(caught.value) for field in fields(StreamOptions))


FILE = {
    '{"encoding": "mulaw"}': (8000, 1),
    '{"encoding": "alaw", "sample_rate": 16000, "channels": "2", "channel": 1}': (16000, 2),
    '{"encoding": "pcm16"}': (16000, 1),
    '{"encoding": "float32", "sample_rate": 48000}': (48000, 1),
}


@pytest.mark.parametrize("parameters", list(FILE))
def test_raw_audio_is_what_is_declared(parameters: str) -> None:
    raw = parse_options(parameters, FileOptions).raw
    assert raw is not None
    assert (raw.sample_rate, raw.channels) == FILE[parameters]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ('{"encoding": "mp3"}', "encoding is 'mp3'; choose one of"),
        ('{"sample_rate": 8000, "channels": 1}', "sample_rate and channels describe raw audio"),
        ('{"encoding": "pcm16", "channels": 0}', "channels is 0; it must be 1 to 32"),
        ('{"encoding": "pcm16", "channels": 33}', "channels is 33"),
        ('{"encoding": "pcm16", "sample_rate": 100}', "sample_rate is 100 Hz"),
        ('{"encoding": "pcm16", "channel": 1}', "channel is 1 and channels is 1; they count from 0"),
        ('{"channel": -1}', "channels count from 0"),
        ('{"channel": "left"}', "whole number"),
    ],
)
def test_options_of_a_file_that_cannot_be_honoured_are_refused(parameters: str, words: str) -> None:
    with pytest.raises(Refusal, match=words):
        parse_options(parameters, FileOptions)


def test_a_file_without_options_says_itself_what_it_is() -> None:
    options = parse_options('{"channel": 1}', FileOptions)
    assert (options.raw, options.channel) == (None, 1)


def test_each_model_of_the_ensemble_passes_over_the_others_options() -> None:
    parameters = '{"channel": 1, "n_best": 2}'
    assert parse_options(parameters, FileOptions, meant_elsewhere=CLIP_OPTIONS).channel == 1
    assert parse_options(parameters, ClipOptions, meant_elsewhere=FILE_OPTIONS).n_best == 2
    for kind, others in ((FileOptions, CLIP_OPTIONS), (ClipOptions, FILE_OPTIONS)):
        with pytest.raises(Refusal, match="unknown option chanel; valid here: ") as caught:
            parse_options('{"chanel": 1}', kind, meant_elsewhere=others)
        assert all(name in str(caught.value) for name in (*CLIP_OPTIONS, *FILE_OPTIONS))
    assert not set(CLIP_OPTIONS) & set(FILE_OPTIONS)


def test_decoding_files_loads_no_engine() -> None:
    modules = "oasr_backend.audio.files, oasr_backend.triton.decode_settings, oasr_backend.triton.request_options"
    script = f"import sys, {modules}, oasr_backend.triton.audio_info; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0


def test_what_is_known_of_a_file_goes_from_one_model_to_the_other() -> None:
    audio = DecodedAudio(np.zeros(5, dtype=np.float32), "MP3", 44100, 2, 1.23456, ("cut off",))
    info = info_json(audio)
    assert json.loads(info) == {
        "format": "MP3",
        "sample_rate": 44100,
        "channels": 2,
        "seconds": 1.235,
        "warnings": ["cut off"],
    }
    plain = info_json(replace(audio, warnings=()))
    rows = np.array([[info.encode()], [plain.encode()]], dtype=np.object_)
    assert read_warnings(rows, 2) == [("cut off",), ()]


@pytest.mark.parametrize("info", [b"", b"[]", b"{", b'{"warnings": 1}', b'{"warnings": [1]}', b"\xff"])
def test_what_audio_decode_did_not_write_is_refused(info: bytes) -> None:
    with pytest.raises(Refusal, match="AUDIO_INFO"):
        read_warnings(np.array([[info]], dtype=np.object_), 1)


def test_information_must_come_for_every_row() -> None:
    with pytest.raises(Refusal, match="one a row"):
        read_warnings(np.array([[b"{}"]], dtype=np.object_), 2)


def test_bytes_are_cut_to_their_true_length_and_come_alone() -> None:
    encoded = np.arange(4, dtype=np.uint8).reshape(1, 4)
    assert read_rows(None, None, np.array([[3]], dtype=np.int32), encoded)[0].tolist() == [0, 1, 2]
    with pytest.raises(Refusal, match="both PCM and BYTES"):
        read_rows(None, np.zeros((1, 4), dtype=np.int16), None, encoded)


def test_rows_are_copied_and_cut_to_their_true_lengths() -> None:
    wav = np.arange(8, dtype=np.float32).reshape(2, 4)
    rows = read_rows(wav, None, np.array([[3], [0]], dtype=np.int32))
    wav[:] = -1
    assert [row.tolist() for row in rows] == [[0, 1, 2], []]


@pytest.mark.parametrize(
    ("wav", "pcm", "lengths", "message"),
    [
        ((1, 4), (1, 4), None, "both WAV and PCM"),
        (None, None, None, "neither WAV nor PCM"),
        ((4,), None, None, "shape"),
        ((1, 4), None, [[5]], "WAV_LENS is 5"),
        ((1, 4), None, [[-1]], "WAV_LENS is -1"),
        ((1, 4), None, [[1], [1]], "2 lengths for 1 rows"),
    ],
)
def test_inputs_that_contradict_each_other_are_refused(wav, pcm, lengths, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Refusal, match=message):
        read_rows(
            None if wav is None else np.zeros(wav, dtype=np.float32),
            None if pcm is None else np.zeros(pcm, dtype=np.int16),
            None if lengths is None else np.array(lengths, dtype=np.int32),
        )


def test_a_result_names_its_segment_only_when_there_is_text() -> None:
    empty = json.loads(result_json(RequestOutput("r", audio_seconds=1.5), is_final=False))
    assert empty == {"text": "", "is_final": False, "segments": [], "audio_seconds": 1.5}
    output = RequestOutput(
        "r",
        text="ä b",
        finished=True,
        finish_reason="stop",
        start=0.2,
        end=1.0,
        confidence=0.5,
        audio_seconds=2.0,
        segments=(Segment("ä b", 0.2, 1.0, 0.5, is_final=True),),
    )
    final = json.loads(result_json(output, is_final=True))
    assert set(final) == {"text", "is_final", "segments", "audio_seconds", "finish_reason"}
    assert (final["text"], final["is_final"], final["finish_reason"]) == ("ä b", True, "stop")
    assert final["segments"] == [
        {"id": 0, "text": "ä b", "start": 0.2, "end": 1.0, "is_final": True, "confidence": 0.5}
    ]


def test_a_result_tells_all_that_was_asked_for() -> None:
    first = Segment(
        "a",
        0.2001,
        1.0,
        0.50001,
        is_final=True,
        words=(TimedWord("a", 0.2001, 1.0, 0.50001),),
        alternatives=(Alternative("a", -1.00001), Alternative("b", -2.0)),
        endpoint="silence",
    )
    output = RequestOutput(
        "r",
        text="a c",
        tokens=((1, 2), (1, 3)),
        scores=(-1.5, -2.25),
        nbest_texts=("a c", "a d"),
        audio_seconds=4.0,
        segments=(first, Segment("c", 2.0, 3.0, 0.75, is_final=False)),
        endpoint=Endpoint(60, 2.4, "silence"),
        speech_events=(SpeechBoundary("speech_start", 0.2), SpeechBoundary("speech_end", 1.0)),
        warnings=("a hotword cannot be spelt",),
    )
    assert json.loads(result_json(output, is_final=False)) == {
        "text": "a c",
        "is_final": False,
        "segments": [
            {
                "id": 0,
                "text": "a",
                "start": 0.2,
                "end": 1.0,
                "is_final": True,
                "confidence": 0.5,
                "words": [{"word": "a", "start": 0.2, "end": 1.0, "confidence": 0.5}],
                "alternatives": [{"text": "a", "score": -1.0}, {"text": "b", "score": -2.0}],
                "endpoint": "silence",
            },
            {"id": 1, "text": "c", "start": 2.0, "end": 3.0, "is_final": False, "confidence": 0.75},
        ],
        "audio_seconds": 4.0,
        "alternatives": [{"text": "a c", "score": -1.5}, {"text": "a d", "score": -2.25}],
        "endpoint": {"frame": 60, "time": 2.4, "reason": "silence"},
        "speech_events": [{"type": "speech_start", "time": 0.2}, {"type": "speech_end", "time": 1.0}],
        "warnings": ["a hotword cannot be spelt"],
    }


class StillEngine:
    has_work = False
    seconds_held = float("inf")

    def step(self) -> list[RequestOutput]:
        return []


class RecordingDesk:
    """Dies on the item `fatal`; keeps the others until it is closed."""

    expects_more = False

    def __init__(self) -> None:
        self.waiting: list[object] = []

    def arrive(self, item: object, now: float) -> None:
        if item is FATAL:
            raise SystemExit("injected")
        if item is BROKEN:
            raise ZeroDivisionError("injected")
        self.waiting.append(item)

    def deliver(self, outputs: object, now: float) -> None: ...

    def reap(self, now: float) -> None: ...

    def close(self, refusal: Refusal) -> None:
        for item in self.waiting:
            item.reply.refuse(refusal)  # type: ignore[attr-defined]
        self.waiting.clear()


class Item:
    def __init__(self) -> None:
        self.codes: list[str] = []
        self.reply = self

    def refuse(self, refusal: Refusal) -> None:
        self.codes.append(refusal.code)


FATAL, BROKEN = Item(), Item()


def test_when_the_engine_thread_dies_everybody_is_answered_before_and_after() -> None:
    dead = threading.Event()
    loop = EngineLoop(StillEngine(), RecordingDesk(), 0.0, lambda now: None)
    loop.start()
    Watchdog(loop, dead.set, interval_s=0.01).start()
    before, after = Item(), Item()
    loop.submit(before)
    loop.submit(FATAL)
    assert dead.wait(PATIENCE_S)
    loop.submit(after)
    deadline = time.monotonic() + PATIENCE_S
    while not after.codes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert before.codes == FATAL.codes == ["ENGINE_DIED"]
    # It had no part in the death, and its client must not take it for the cause.
    assert after.codes == ["SHUTTING_DOWN"]
    loop.stop()


def test_a_request_that_cannot_be_taken_in_fails_alone() -> None:
    loop = EngineLoop(StillEngine(), RecordingDesk(), 0.0, lambda now: None)
    loop.start()
    item = Item()
    loop.submit(BROKEN)
    loop.submit(item)
    loop.stop()
    assert BROKEN.codes == ["INTERNAL_ERROR"]
    assert item.codes == ["SHUTTING_DOWN"]


def test_stopping_answers_whoever_waits_and_is_no_death() -> None:
    deaths: list[int] = []
    loop = EngineLoop(StillEngine(), RecordingDesk(), 0.0, lambda now: None)
    loop.start()
    Watchdog(loop, lambda: deaths.append(1), interval_s=0.01).start()
    item = Item()
    loop.submit(item)
    loop.stop()
    assert item.codes == ["SHUTTING_DOWN"]
    late = Item()
    loop.submit(late)
    assert late.codes == ["SHUTTING_DOWN"]
    time.sleep(0.1)
    assert not deaths
