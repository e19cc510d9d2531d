"""Faults inside the engine, in a server whose model has been made to fail on demand; the last test ends it."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.server.process import group_members
from oasr_backend.server.workspace import shared_memory_files
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    OFFLINE,
    PROTOCOLS,
    STREAMING,
    Stream,
    Wire,
    all_clips,
    clip,
    code_of,
    copied_repository,
    counter,
    cut,
    eventually,
    gauge,
    metrics,
    outcome_of,
    references,
    refusal,
    replace_once,
    settled_counter,
    status_of,
    streamed,
    streams_are_back,
    together,
)

FAILING_CHUNK_SIZE = 5
# Chunks and clips of these lengths bring a fault about.
BROKEN_SAMPLES = 23456
DEADLY_SAMPLES = 12345
FAILING_SAMPLES = 34567
STOPPING_SAMPLES = 45678
DYING, STOPPING = "is about to die", "is about to stop"
MODEL = f'''
import time

# First, for it lengthens the search path by that of the launcher.
import triton_python_backend_utils

from oasr_backend.triton.streaming_model import StreamingModel


class TritonPythonModel(StreamingModel):
    """Fails in the forward pass of streams of one chunk size; fails to take in, or dies of, chunks of one length."""

    def initialize(self, args):
        super().initialize(args)
        engine, runner = self._engine, self._engine._runner
        feed_chunk, forward_chunks = engine.feed_chunk, runner.forward_chunks

        def failing_forward(requests, *rest):
            if requests[0].chunk_size == {FAILING_CHUNK_SIZE}:
                raise RuntimeError("made to fail")
            return forward_chunks(requests, *rest)

        def deadly_feed(request_id, chunk, is_last=False):
            if len(chunk) == {BROKEN_SAMPLES}:
                raise RuntimeError("made to break")
            feed_chunk(request_id, chunk, is_last)
            if len(chunk) == {DEADLY_SAMPLES}:
                engine.step = die

        def die():
            print({DYING!r}, flush=True)
            # Meanwhile others' requests arrive and wait.
            time.sleep(3)
            raise SystemExit("made to die")

        runner.forward_chunks = failing_forward
        engine.feed_chunk = deadly_feed
'''
OFFLINE_MODEL = f'''
import threading
import time

import triton_python_backend_utils

from oasr_backend.triton.offline_model import OfflineModel


class TritonPythonModel(OfflineModel):
    """Fails in the features of clips of one length; is taken down, as by a server that ends, by one of another."""

    def initialize(self, args):
        super().initialize(args)
        inputs, loop = self._engine._inputs, self._loop
        packed = inputs.packed

        def failing(waves):
            if any(len(wave) == {FAILING_SAMPLES} for wave in waves):
                raise RuntimeError("made to fail")
            if any(len(wave) == {STOPPING_SAMPLES} for wave in waves):
                threading.Thread(target=loop.stop).start()
                print({STOPPING!r}, flush=True)
                # Meanwhile others' requests arrive and wait.
                time.sleep(3)
            return packed(waves)

        inputs.packed = failing
'''


@pytest.fixture(scope="module")
def faulty_server(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Also one that expires streams after 4 s and reaps them after 6 s."""
    repository = copied_repository(tmp_path_factory.mktemp("faulty") / "models", STREAMING, OFFLINE)
    (repository / STREAMING / "1" / "model.py").write_text(MODEL)
    (repository / OFFLINE / "1" / "model.py").write_text(OFFLINE_MODEL)
    replace_once(repository / STREAMING / "config.pbtxt", "idle_microseconds: 30000000", "idle_microseconds: 4000000")
    with running_server(
        demo_checkpoint_dir(),
        model_repository=repository,
        environment={
            "OASR_DTYPE": "float32",
            "OASR_STREAMING_IDLE_SECONDS": "6",
            "OASR_LOG_FORMAT": "json",
            "OASR_LOG_LEVEL": "INFO",
        },
        log_path=repository.parent / "server.log",
        ready_timeout_s=240,
        exit_timeout_s=5,
    ) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, faulty_server: RunningServer) -> Iterator[Wire]:
    with Wire(faulty_server, request.param) as wire:
        yield wire


def logged(server: RunningServer, message: str = "") -> list[dict[str, Any]]:
    """The JSON lines of the log, those of a message alone."""
    rows = [json.loads(line) for line in server.log_text().splitlines() if line.startswith('{"time": ')]
    return [row for row in rows if message in ("", row["message"])]


def test_an_abandoned_stream_is_reaped_with_its_pages_while_a_slow_one_lives(
    faulty_server: RunningServer, wire: Wire
) -> None:
    reaped = settled_counter(faulty_server, "sequences_reaped")
    slow = Stream(wire)
    slow.send(NOTHING)
    abandoned = [Stream(wire) for _ in range(3)]
    for stream in abandoned:
        stream.send(clip("digits.flac"))
    assert eventually(lambda: gauge(faulty_server, "sequences_open") == 4)
    assert gauge(faulty_server, "engine_kv_blocks_used") > 0
    deadline = time.monotonic() + 60
    while counter(faulty_server, "sequences_reaped") < reaped + 3 and time.monotonic() < deadline:
        slow.send(NOTHING)
        time.sleep(0.3)
    assert slow.send(clip("command.flac"), end=True) == references()["command.flac"]
    assert counter(faulty_server, "sequences_reaped") == reaped + 3
    assert {row["correlation_id"] for row in logged(faulty_server, "stream reaped")} >= {one.id for one in abandoned}
    assert eventually(lambda: streams_are_back(faulty_server))
    for stream in abandoned:
        assert "START" in refusal(stream.end).message()
        assert Stream(wire, stream.id).send(clip("digits.flac"), end=True) == references()["digits.flac"]


def test_a_failed_step_fails_its_own_streams_alone(faulty_server: RunningServer, wire: Wire) -> None:
    failed = settled_counter(faulty_server, "sequences_failed")
    gate = threading.Barrier(9)

    def play(number: int) -> Any:
        options = {"chunk_size": FAILING_CHUNK_SIZE} if number % 3 == 0 else {}
        gate.wait(60)
        return outcome_of(lambda: streamed(faulty_server, cut(all_clips(), 3200), wire.protocol, **options))

    outcomes = together(play, range(9))
    expected = streamed(faulty_server, cut(all_clips(), CHUNK))
    for number, outcome in enumerate(outcomes):
        if number % 3:
            assert outcome == expected
        else:
            assert status_of(outcome) == "INTERNAL"
            assert code_of(outcome) == "STREAM_FAILED"
            assert "Traceback" not in outcome.message() and ".py" not in outcome.message()
    assert eventually(lambda: counter(faulty_server, "sequences_failed") == failed + 3)
    assert metrics(faulty_server)['oasr_requests_failed_total{model="oasr_streaming",stage="streaming_forward"}'] >= 3
    assert eventually(lambda: streams_are_back(faulty_server))
    assert "made to fail" in faulty_server.log_text()
    told = logged(faulty_server, "stream failed")
    assert len(told) >= 3
    assert {(row["level"], row["stage"]) for row in told} == {("ERROR", "streaming_forward")}
    assert any("made to fail" in row.get("exception", "") for row in logged(faulty_server))


def test_a_failed_stream_says_so_until_its_end_and_its_id_can_be_used_again(wire: Wire) -> None:
    stream = Stream(wire, chunk_size=FAILING_CHUNK_SIZE)
    for _ in range(2):
        error = refusal(lambda: stream.send(clip("digits.flac")))
        assert status_of(error) == "INTERNAL"
        assert code_of(error) == "STREAM_FAILED"
    assert code_of(refusal(stream.end)) == "STREAM_FAILED"
    assert "START" in refusal(stream.end).message()
    for name in CLIPS:
        assert Stream(wire, stream.id).play(cut(clip(name), CHUNK))[-1] == references()[name]


def test_a_request_that_cannot_be_taken_in_fails_alone(wire: Wire) -> None:
    stream = Stream(wire)
    stream.send(clip("digits.flac")[:CHUNK])
    error = refusal(lambda: stream.send(np.zeros(BROKEN_SAMPLES, dtype=np.float32)))
    assert status_of(error) == "INTERNAL"
    assert code_of(error) == "INTERNAL_ERROR"
    assert stream.send(clip("digits.flac")[CHUNK:], end=True) == references()["digits.flac"]


def test_a_failed_clip_fails_alone(faulty_server: RunningServer, wire: Wire) -> None:
    lengths = [FAILING_SAMPLES, *[len(clip(name)) for name in CLIPS]]
    clips = [np.zeros(FAILING_SAMPLES, dtype=np.float32), *map(clip, CLIPS)]

    def transcribe(samples: np.ndarray) -> Any:
        with Wire(faulty_server, wire.protocol) as own:
            return outcome_of(lambda: own.transcribe(samples))

    failed, *texts = together(transcribe, clips)
    assert lengths.count(FAILING_SAMPLES) == 1
    assert status_of(failed) == "INTERNAL"
    assert code_of(failed) == "CLIP_FAILED"
    assert "made to fail" not in failed.message() and ".py" not in failed.message()
    assert texts == list(map(references().get, CLIPS))


def test_clips_that_wait_when_their_model_is_taken_down_are_told(faulty_server: RunningServer) -> None:
    """By a model that stops itself: a server that ends waits for requests that are in before it takes a model down."""

    def transcribe(number: int) -> Any:
        samples = np.zeros(STOPPING_SAMPLES, dtype=np.float32) if number == 0 else clip("digits.flac")
        with Wire(faulty_server, PROTOCOLS[number % 2]) as wire:
            # The first one is at work when the others come.
            assert number == 0 or eventually(lambda: STOPPING in faulty_server.log_text())
            return outcome_of(lambda: wire.transcribe(samples))

    _, *waiting = together(transcribe, range(9), 60)
    # And whoever comes after that.
    waiting += together(transcribe, range(1, 5), 60)
    for outcome in waiting:
        assert isinstance(outcome, InferenceServerException)
        assert status_of(outcome) == "UNAVAILABLE"
        assert code_of(outcome) == "SHUTTING_DOWN"


def test_when_the_engine_thread_dies_everybody_is_answered_and_the_server_ends(faulty_server: RunningServer) -> None:
    opened = threading.Barrier(9)

    def wait_for_the_end(number: int) -> Any:
        with Wire(faulty_server, PROTOCOLS[number % 2]) as wire:
            stream = Stream(wire)
            stream.send(clip("digits.flac")[:CHUNK])
            opened.wait(60)
            assert eventually(lambda: DYING in faulty_server.log_text())
            return outcome_of(lambda: stream.send(clip("digits.flac")[CHUNK:], end=number > 3))

    def kill(number: int) -> Any:
        with Wire(faulty_server) as wire:
            opened.wait(60)
            return outcome_of(lambda: Stream(wire).send(np.zeros(DEADLY_SAMPLES, dtype=np.float32)))

    outcomes = together(lambda number: kill(number) if number == 8 else wait_for_the_end(number), range(9), 60)
    for outcome in outcomes:
        assert isinstance(outcome, InferenceServerException)
        assert status_of(outcome) == "UNAVAILABLE"
        assert code_of(outcome) == "ENGINE_DIED"
    with Wire(faulty_server) as wire:
        while faulty_server.is_alive():
            late = outcome_of(lambda: Stream(wire).send(clip("digits.flac")))
            assert status_of(late) in ("UNAVAILABLE", "NOT_FOUND")
            time.sleep(0.1)
    assert faulty_server.wait(60)
    assert "made to die" in faulty_server.log_text()
    assert group_members(faulty_server.pid) == []
    faulty_server.stop()
    assert shared_memory_files(faulty_server.shm_prefix) == []
