"""docs/errors.md, row by row: every error in it is produced over both protocols, and there is no other code."""

import inspect
import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer
from oasr_backend.triton import errors
from tests.server import test_failures, test_stop
from tests.server.support import (
    CHUNK,
    NOTHING,
    OFFLINE,
    PROTOCOLS,
    RATE,
    SMALL_LIMIT,
    STREAMING,
    Stream,
    Wire,
    all_clips,
    as_pcm,
    clip,
    code_of,
    eventually,
    inputs_of,
    new_id,
    outcome_of,
    refusal,
    streams_are_back,
    together,
)

DOCUMENT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
SPEECH = clip("digits.flac")[:CHUNK]
# What needs a race to come about is tried so often.
TRIES = 15


# the document


@dataclass(frozen=True)
class Row:
    """A row of a table; `code` is "" for what Triton itself refuses, a protocol's status "-" where it cannot occur."""

    code: str
    grpc: str
    http: str
    example: str

    def status(self, protocol: str) -> str:
        return self.grpc if protocol == "grpc" else self.http

    @property
    def pattern(self) -> str:
        """What a message looks like: numbers and `…` stand for anything of their kind."""
        escaped = re.escape(self.example).replace("…", ".*")
        sentence = re.sub(r"\d+(\\\.\d+)?", r"[0-9]+(?:[.][0-9]+)?", escaped)
        return rf"{self.code}: {sentence}" if self.code else sentence


def table(heading: str) -> Iterator[list[str]]:
    """The cells of the rows below a heading."""
    section = f"\n{DOCUMENT}".split(f"\n{heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


STATUSES = {name: (grpc, http) for name, grpc, http, _ in table("# Errors")}
OURS = [Row(code, *STATUSES[status], example) for code, status, _, example, _ in table("## Of the models")]
TRITONS = [Row("", grpc, http, message) for grpc, http, _, message, _ in table("## Of Triton")]


# what produces each


@dataclass(frozen=True)
class Servers:
    """The usual one, and the one with small limits."""

    usual: RunningServer
    small: RunningServer


Outcomes = Sequence[Any]
Produce = Callable[[Servers, str], Outcomes]
"""Outcomes of requests over a protocol, among them the error."""


def closed_part(servers: Servers, protocol: str) -> Outcomes:
    """A part of Triton's interface that is closed by default."""
    with Wire(servers.usual, protocol) as wire:
        return [outcome_of(wire.client.get_log_settings)]


def of_stream(inputs: dict[str, np.ndarray], **options: Any) -> Produce:
    """A stream's first chunk; what it may have opened is ended."""

    def produce(servers: Servers, protocol: str) -> Outcomes:
        with Wire(servers.usual, protocol) as wire:
            stream = Stream(wire, **options)
            outcome = outcome_of(lambda: stream.infer(inputs))
            outcome_of(stream.end)
            return [outcome]

    return produce


def of_clip(inputs: dict[str, np.ndarray], model: str = OFFLINE, small: bool = False, **arguments: Any) -> Produce:
    def produce(servers: Servers, protocol: str) -> Outcomes:
        with Wire(servers.small if small else servers.usual, protocol) as wire:
            return [outcome_of(lambda: wire.infer(model, inputs, **arguments))]

    return produce


def of_clip_options(**options: Any) -> Produce:
    return of_clip(inputs_of(SPEECH), parameters=options)


def options_after_start(servers: Servers, protocol: str) -> Outcomes:
    with Wire(servers.usual, protocol) as wire:
        stream = Stream(wire)
        stream.send(SPEECH)
        late = {"parameters": {"chunk_size": 8}, "sequence_id": stream.id}
        outcome = outcome_of(lambda: wire.infer(STREAMING, inputs_of(SPEECH), **late))
        stream.end()
        return [outcome]


def chunk_behind_a_refused_start(servers: Servers, protocol: str) -> Outcomes:
    with Wire(servers.usual, protocol) as wire:
        stream = Stream(wire, chunk_size=99)
        refusal(lambda: stream.send(SPEECH))
        return [outcome_of(lambda: stream.send(SPEECH)), outcome_of(stream.end)]


def chunk_too_long(servers: Servers, protocol: str) -> Outcomes:
    with Wire(servers.small, protocol) as wire:
        return [outcome_of(lambda: Stream(wire).send(silence(21), end=True))]


def chunk_behind_the_page_ceiling(servers: Servers, protocol: str) -> Outcomes:
    with Wire(servers.small, protocol) as wire:
        stream = Stream(wire)
        talk = as_pcm(np.tile(all_clips(), 2))[: 15 * RATE]
        outcomes = [outcome_of(lambda: stream.send(talk)) for _ in range(4)]
        # The text up to there is not lost.
        final = stream.infer(inputs_of(NOTHING), end=True, outputs=["RESULT"])
        document = json.loads(final.as_numpy("RESULT")[0])
        assert document["finish_reason"] == "length"
        assert document["text"]
        return outcomes


def a_stream_too_many(servers: Servers, protocol: str) -> Outcomes:
    with Wire(servers.small, protocol) as wire:
        streams = [Stream(wire) for _ in range(SMALL_LIMIT)]
        for stream in streams:
            stream.send(SPEECH)
        outcome = outcome_of(lambda: Stream(wire).send(SPEECH))
        for stream in streams:
            stream.end()
        return [outcome]


def side_by_side(servers: Servers, protocol: str, *requests: Callable[[Wire], Any]) -> Outcomes:
    """Outcomes of requests to the small server that are sent at the same moment, each over its own connection."""
    gate = threading.Barrier(len(requests))

    def one(request: Callable[[Wire], Any]) -> Any:
        with Wire(servers.small, protocol) as wire:
            gate.wait(60)
            return outcome_of(lambda: request(wire))

    return together(one, requests)


def clips(*seconds: float) -> Callable[[Wire], Any]:
    """A request of silent clips of one length."""
    wave = np.zeros((len(seconds), int(seconds[0] * RATE)), dtype=np.int16)
    return lambda wire: wire.infer(OFFLINE, {"PCM": wave})


def a_clip_too_many(servers: Servers, protocol: str) -> Outcomes:
    return side_by_side(servers, protocol, clips(20, 20, 20), clips(8, 8, 8))


def more_clip_audio_than_may_wait(servers: Servers, protocol: str) -> Outcomes:
    return side_by_side(servers, protocol, clips(45, 45), clips(30, 30))


def chunks_side_by_side(servers: Servers, protocol: str, *streams: int) -> Outcomes:
    """A long chunk for each of `streams`, which are numbers, all at once."""
    with Wire(servers.small, protocol) as wire:
        opened = {number: Stream(wire) for number in set(streams)}
        for stream in opened.values():
            stream.send(NOTHING)
        long = silence(19)

        def chunk(number: int) -> Callable[[Wire], Any]:
            return lambda own: own.infer(STREAMING, inputs_of(long), sequence_id=opened[number].id)

        outcomes = side_by_side(servers, protocol, *map(chunk, streams))
        for stream in opened.values():
            # A stream whose chunk was refused goes on.
            stream.end()
        return outcomes


def two_long_chunks_of_a_stream(servers: Servers, protocol: str) -> Outcomes:
    return chunks_side_by_side(servers, protocol, 1, 1)


def long_chunks_of_four_streams(servers: Servers, protocol: str) -> Outcomes:
    return chunks_side_by_side(servers, protocol, 1, 2, 3, 4)


def a_second_start_while_a_chunk_waits(servers: Servers, protocol: str) -> Outcomes:
    sequence_id = new_id()

    def first(_: None) -> Any:
        with Wire(servers.usual, protocol) as wire:
            return outcome_of(lambda: Stream(wire, sequence_id).send(silence(200)))

    def second(_: None) -> Any:
        with Wire(servers.usual, protocol) as wire:
            time.sleep(0.4)
            return outcome_of(lambda: Stream(wire, sequence_id).send(NOTHING, end=True))

    return together(lambda work: work(None), [first, second])


def silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * RATE), dtype=np.int16)


def spoilt(value: float) -> np.ndarray:
    samples = SPEECH.copy()
    samples[100] = value
    return samples


def no_file() -> dict[str, np.ndarray]:
    return {"AUDIO": np.array([[b"no audio at all"]], dtype=np.object_)}


def of_sequence(**sequence: Any) -> Produce:
    def produce(servers: Servers, protocol: str) -> Outcomes:
        with Wire(servers.usual, protocol) as wire:
            return [outcome_of(lambda: wire.infer(STREAMING, inputs_of(SPEECH), **sequence))]

    return produce


def plain_json(parameters: Any, body: bytes | None = None) -> Produce:
    """A body of HTTP that no client library would send."""
    tensor = {"name": "WAV", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}

    def produce(servers: Servers, protocol: str) -> Outcomes:
        data = body or json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
        url = f"http://{servers.usual.http_url}/v2/models/{OFFLINE}/infer"
        try:
            urllib.request.urlopen(urllib.request.Request(url, data, {"Connection": "close"}), timeout=60)
        except urllib.error.HTTPError as error:
            return [InferenceServerException(json.load(error)["error"], str(error.code))]
        return []

    return produce


# By a part of the row's example that no other has.
PRODUCERS: dict[str, Produce] = {
    "NaN or infinity": of_stream(inputs_of(spoilt(np.nan))),
    "holds a sample of": of_stream(inputs_of(SPEECH * 32768)),
    "both WAV and PCM": of_stream({**inputs_of(SPEECH), **inputs_of(as_pcm(SPEECH))}),
    "neither WAV nor PCM": of_stream({"WAV_LENS": np.array([[5]], dtype=np.int32)}),
    "WAV_LENS is": of_stream(inputs_of(SPEECH, CHUNK + 1)),
    "the chunk lasts": chunk_too_long,
    "s of audio and max_queued_clip_seconds": of_clip({"PCM": np.zeros((3, 40 * RATE), np.int16)}, small=True),
    "clips and max_queued_clips is": of_clip({"WAV": np.zeros((5, 10), np.float32)}, small=True),
    "max_audio_seconds": of_clip(inputs_of(silence(51)), small=True),
    "no audio file that is known": of_clip(no_file(), model="audio_decode", outputs=["WAV"]),
    "unknown option": of_stream(inputs_of(SPEECH), n_bset=3),
    "'many'": of_clip_options(n_best="many"),
    "hotword_score is": of_clip_options(hotword_score=-1.0),
    "hotwords are set": of_stream(inputs_of(SPEECH), hotwords='["a"]'),
    "is an option of streams": of_clip_options(chunk_size=8),
    "is an option of clips": of_stream(inputs_of(SPEECH), queue_priority=1),
    "came after the START": options_after_start,
    "no stream is open under": chunk_behind_a_refused_start,
    "has ended early": chunk_behind_the_page_ceiling,
    "begun anew": a_second_start_while_a_chunk_waits,
    "(max_sequences)": a_stream_too_many,
    "(max_queued_clips)": a_clip_too_many,
    "(max_queued_clip_seconds)": more_clip_audio_than_may_wait,
    "of the stream's audio are queued": two_long_chunks_of_a_stream,
    "max_total_queued_seconds": long_chunks_of_four_streams,
    "must specify the START flag": of_sequence(sequence_id=new_id()),
    "non-empty correlation ID": of_sequence(sequence_id=0, sequence_start=True),
    "longer than 128 characters": of_sequence(sequence_id="x" * 129, sequence_start=True, sequence_end=True),
    "unknown model": of_clip(inputs_of(SPEECH), model="oasr"),
    "data-type is": of_clip({"WAV": SPEECH[None].astype(np.float64)}),
    "unexpected shape": of_clip({"WAV": SPEECH.reshape(1, 2, -1)}),
    "batch-size must be <=": of_clip({"WAV": SPEECH}),
    "does not match other inputs": of_clip({**inputs_of(SPEECH), "WAV_LENS": np.array([[1], [2]], np.int32)}),
    "must specify batch-size 1": of_stream({"WAV": SPEECH.reshape(2, -1)}),
    "unexpected inference input": of_clip({"SAMPLES": SPEECH[None]}),
    "unexpected inference output": of_clip(inputs_of(SPEECH), outputs=["TEXT"]),
    "request has": of_clip({}),
    "has invalid type": plain_json({"hotwords": ["a"]}),
    "failed to parse": plain_json(None, b"{nonsense"),
    "protocol is restricted": closed_part,
    "API is restricted": closed_part,
}
# Errors of a failing or ending server, by the test that brings them about.
PRODUCED_ELSEWHERE: dict[str, Callable[..., None]] = {
    "SHUTTING_DOWN": test_failures.test_clips_that_wait_when_their_model_is_taken_down_are_told,
    "ENGINE_DIED": test_failures.test_when_the_engine_thread_dies_everybody_is_answered_and_the_server_ends,
    "STREAM_FAILED": test_failures.test_a_failed_stream_says_so_until_its_end_and_its_id_can_be_used_again,
    "CLIP_FAILED": test_failures.test_a_failed_clip_fails_alone,
    "INTERNAL_ERROR": test_failures.test_a_request_that_cannot_be_taken_in_fails_alone,
    # Of Triton.
    "UNAVAILABLE or NOT_FOUND": test_stop.test_streams_that_are_open_at_a_stop_get_their_whole_text,
}


def producers_of(row: Row) -> list[str]:
    return [part for part in PRODUCERS if part in row.example]


HERE = [row for row in (*OURS, *TRITONS) if producers_of(row)]


@pytest.fixture
def servers(server: RunningServer, small_server: RunningServer) -> Servers:
    return Servers(server, small_server)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("row", HERE, ids=lambda row: producers_of(row)[0])
def test_the_row_is_produced(servers: Servers, row: Row, protocol: str) -> None:
    if row.status(protocol) == "-":
        assert row.status("grpc" if protocol == "http" else "http") != "-"
        return
    (part,) = producers_of(row)
    seen: list[str] = []
    for _ in range(TRIES):
        refused = [one for one in PRODUCERS[part](servers, protocol) if isinstance(one, InferenceServerException)]
        for error in refused:
            message = error.message()
            seen.append(message)
            if re.fullmatch(row.pattern, message):
                assert (error.status() or "").removeprefix("StatusCode.") == row.status(protocol)
                assert not row.code or code_of(error) == row.code
                assert "\n" not in message and "Traceback" not in message and len(message) <= 800
                return
    raise AssertionError(f"{row.pattern} was never seen, but {sorted(set(seen))}")


def test_every_row_has_one_producer_and_every_producer_a_row() -> None:
    for row in (*OURS, *TRITONS):
        elsewhere = (row.code or row.grpc) in PRODUCED_ELSEWHERE
        assert len(producers_of(row)) + elsewhere == 1, row
    produced = [part for row in HERE for part in producers_of(row)]
    assert sorted(produced) == sorted(PRODUCERS)
    assert {*PRODUCED_ELSEWHERE} <= {row.code or row.grpc for row in (*OURS, *TRITONS)}


@pytest.mark.parametrize("name", PRODUCED_ELSEWHERE)
def test_what_is_produced_elsewhere_is_asserted_there_over_both_protocols(name: str) -> None:
    source = inspect.getsource(PRODUCED_ELSEWHERE[name])
    for word in name.split(" or "):
        assert f'"{word}"' in source or f'"StatusCode.{word}"' in source
    takes_wire = "wire" in inspect.signature(PRODUCED_ELSEWHERE[name]).parameters
    assert takes_wire or "PROTOCOLS" in source or name == "UNAVAILABLE or NOT_FOUND"


def test_the_document_names_every_code_there_is() -> None:
    source = "".join(path.read_text() for path in Path(errors.__file__).parent.glob("*.py"))
    raised = re.findall(r'Refusal\(\s*"[A-Z_]+",\s*"([A-Z_]+)"', source)
    written = re.findall(r'"([A-Z]+_[A-Z_]+): ', source)
    assert {*raised, *written} == {row.code for row in OURS}


def test_the_statuses_are_as_documented() -> None:
    assert STATUSES == {
        "INVALID_ARG": ("INVALID_ARGUMENT", "400"),
        "UNAVAILABLE": ("UNAVAILABLE", "503"),
        "CANCELLED": ("CANCELLED", "400"),
        "INTERNAL": ("INTERNAL", "500"),
    }
    assert set(errors.Status.__args__) == set(STATUSES)  # type: ignore[attr-defined]


def test_every_place_is_free_again(servers: Servers) -> None:
    assert eventually(lambda: streams_are_back(servers.usual) and streams_are_back(servers.small))
