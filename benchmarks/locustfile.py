"""Callers in real time against a running server, with locust and gRPC.

    pip install "oasr-triton[load]"
    locust -f benchmarks/locustfile.py --headless --users 50 --spawn-rate 5 --run-time 3m --host 127.0.0.1:8001

A `Caller` streams recordings of 2 to 20 s in chunks of 640 ms when a microphone would have them, each from a random
moment on; a tenth of the calls is abandoned without an END, a tenth has its last request cancelled. An `Uploader`
(one user in ten) transcribes whole files with pauses. Figures by name: `chunk` and `final`, from the moment audio was
due to its answer; `file`; `client late`, by how much this process missed that moment itself. A text that differs from
that of a run alone, which is made before the test, is a failure.

Exit status 1 when a request failed, when the p99 of `chunk` is longer than a chunk, or when the clients were late: then
the figures are not valid, and more processes (`--processes 4`) or another machine are needed. Variables:
OASR_LOAD_ABANDONED and OASR_LOAD_CANCELLED (shares), OASR_LOAD_SECONDS (lengths, "2,5,10,20"). Token and TLS are those
of `oasr bench`: --token-file, --tls, --ca, --cert, --key, or their variables.
"""

import itertools
import os
import random
import sys
import time
from functools import cache, partial
from typing import Any

# Before any channel is made: without it every user would wait for every other.
import grpc.experimental.gevent as grpc_gevent

grpc_gevent.init_gevent()

import gevent  # type: ignore[import-untyped]
import gevent.event  # type: ignore[import-untyped]
import numpy as np
import tritonclient.grpc as triton
from locust import User, between, constant, events, task
from locust.env import Environment
from locust.runners import STATE_CLEANUP, STATE_STOPPED, STATE_STOPPING, MasterRunner

from benchmarks.load_plan import Ending, Mix, mixed_lengths, plan_call
from benchmarks.serving import recording
from oasr_backend.utils.paths import assets_dir
from oasr_client import Credentials, OfflineClient, StreamingClient, audio, transport, wire
from oasr_client.commands import common
from oasr_client.errors import OasrError
from oasr_client.grpc_transport import channel_arguments
from oasr_client.streaming import MODEL, Stream

CHUNK_MS = 640.0
CHUNK_S = CHUNK_MS / 1000
# A client whose wake-ups are later does not keep the pace that it claims.
LATE_MS = 0.25 * CHUNK_MS
LATE = "client late"
CHUNK = "chunk"
STOP_S = 60.0


class Speech:
    """What is said in a test, and what the server makes of it when it has nothing else to do."""

    def __init__(self) -> None:
        lengths = tuple(float(one) for one in os.environ.get("OASR_LOAD_SECONDS", "2,5,10,20").split(","))
        waves = [recording(max(lengths), variant) for variant in range(3)]
        self.recordings = [part for wave in waves for part in mixed_lengths(wave, lengths)]
        self.chunks = [list(audio.chunks(one, CHUNK_MS)) for one in self.recordings]
        self.files = sorted((assets_dir() / "clips").glob("*.flac"))
        self.texts: list[str] = []
        self.file_texts: list[str] = []

    def listen(self, connections: "Connections") -> None:
        """Hears everything alone. Raises OasrError."""
        for chunks in self.chunks:
            with connections.live.stream() as stream:
                for chunk in chunks[:-1]:
                    stream.send(chunk)
                self.texts.append(stream.finish(chunks[-1]).text)
        self.file_texts = [connections.whole.transcribe_file(path).text for path in self.files]


class Connections:
    """Those of a process, shared by its users and never closed: closing a channel in gevent's hub would block it."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        self.live = StreamingClient(url, credentials=credentials)
        self.whole = OfflineClient(url, credentials=credentials)
        self.bare = triton.InferenceServerClient(
            url, channel_args=channel_arguments(url), **wire.grpc_security(credentials)
        )
        self.headers = credentials.grpc_headers


@cache
def connections_to(url: str, credentials: Credentials) -> Connections:
    return Connections(url, credentials)


def connections(environment: Environment) -> Connections:
    """Raises UsageError for token and certificates that cannot be used."""
    assert environment.parsed_options is not None
    url = environment.host or transport.DEFAULT_URLS["grpc"]
    return connections_to(url, common.credentials(environment.parsed_options))


MIX = Mix(
    abandoned=float(os.environ.get("OASR_LOAD_ABANDONED", "0.1")),
    cancelled=float(os.environ.get("OASR_LOAD_CANCELLED", "0.1")),
)
SPEECH = Speech()
_SEEDS = itertools.count()


@events.init_command_line_parser.add_listener
def _add_arguments(parser: Any) -> None:
    # What a command line says of secrets is not for locust's page.
    common.add_credential_arguments(partial(parser.add_argument, include_in_web_ui=False))


@events.init.add_listener
def _hear_all_alone(environment: Environment, runner: Any = None, **_: Any) -> None:
    # Calls in progress end in good order; without it locust would end them in the middle of a request.
    environment.stop_timeout = environment.stop_timeout or STOP_S
    if isinstance(runner, MasterRunner):
        return
    try:
        SPEECH.listen(connections(environment))
    except OasrError as error:
        sys.exit(f"the recordings cannot be heard alone, before the test: {error}")


@events.quitting.add_listener
def _judge(environment: Environment, **_: Any) -> None:
    late_ms, chunk_ms = (_p99(environment, name) for name in (LATE, CHUNK))
    if late_ms >= LATE_MS:
        print(
            f"not valid: the clients were late themselves by {late_ms:.0f} ms (p99): use --processes or more machines"
        )
    elif chunk_ms >= CHUNK_MS:
        print(f"late: p99 of a chunk {chunk_ms:.0f} ms, it has {CHUNK_MS:.0f} ms: more users than the server holds")
    if late_ms >= LATE_MS or chunk_ms >= CHUNK_MS or environment.stats.total.num_failures:
        environment.process_exit_code = 1


def _p99(environment: Environment, name: str) -> float:
    entry = environment.stats.get(name, "stream")
    return float(entry.get_response_time_percentile(0.99)) if entry.num_requests else 0.0


class OasrUser(User):
    """What both kinds of users share."""

    abstract = True

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.connections = connections(environment)
        self.rng = random.Random(next(_SEEDS))

    def report(self, kind: str, name: str, seconds: float, error: Exception | None = None, size: int = 0) -> None:
        """Counts something that took so long; `size` is that of the text."""
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=1000 * seconds,
            response_length=size,
            exception=error,
            context={},
        )

    @property
    def is_stopping(self) -> bool:
        """Whether the test is over."""
        runner = self.environment.runner
        return runner is not None and runner.state in (STATE_STOPPING, STATE_STOPPED, STATE_CLEANUP)

    def compare(self, text: str, wanted: str) -> Exception | None:
        """The failure where a text is not that of a run alone."""
        return None if text == wanted else AssertionError(f"another text than alone: {text!r}, alone {wanted!r}")


class Caller(OasrUser):
    """Streams in real time."""

    weight = 9
    wait_time = constant(0)

    @task
    def call(self) -> None:
        plan = plan_call(self.rng, [len(one) for one in SPEECH.chunks], CHUNK_S, MIX)
        gevent.sleep(plan.phase_s)
        begin = time.monotonic()
        answered = sent_s = 0.0
        # Not as a context manager, which would always send END.
        stream = self.connections.live.stream()
        for index, chunk in enumerate(SPEECH.chunks[plan.recording][: plan.chunks]):
            sent_s += audio.seconds(chunk)
            due = begin + sent_s
            gevent.sleep(max(0.0, due - time.monotonic()))
            if self.is_stopping:
                self._leave(stream, begun=index > 0)
                return
            sent = time.monotonic()
            # What is late for want of an answer is the server's doing, and counts in the latency.
            self.report("stream", LATE, sent - max(due, answered))
            is_last = index == plan.chunks - 1
            if is_last and plan.ending is Ending.CANCELLED:
                self._cancel(stream, chunk)
                return
            is_final = is_last and plan.ending is Ending.FINISHED
            name = "final" if is_final else CHUNK
            try:
                response = stream.finish(chunk) if is_final else stream.send(chunk)
            except OasrError as error:
                self.report("stream", name, time.monotonic() - due, error)
                return
            answered = time.monotonic()
            difference = self.compare(response.text, SPEECH.texts[plan.recording]) if is_final else None
            self.report("stream", name, answered - due, difference, len(response.text))
        if plan.ending is Ending.ABANDONED:
            self.report("stream", "abandoned", 0.0)

    def _leave(self, stream: Stream, begun: bool) -> None:
        """Ends a call before its time, as the test is over."""
        try:
            if begun:
                stream.finish()
        except OasrError as error:
            self.report("stream", "final", 0.0, error)

    def _cancel(self, stream: Stream, chunk: np.ndarray) -> None:
        """Sends a chunk, takes it back at once, and ends the stream as a decent client does."""
        tensor = triton.InferInput("PCM", [1, len(chunk)], "INT16")
        tensor.set_data_from_numpy(chunk.reshape(1, -1))
        answered = gevent.event.Event()
        request = self.connections.bare.async_infer(
            MODEL,
            [tensor],
            callback=lambda result, error: answered.set(),
            sequence_id=stream.correlation_id,
            headers=self.connections.headers,
        )
        request.cancel()
        begin = time.monotonic()
        answered.wait(timeout=30)
        error: Exception | None = None
        try:
            stream.finish()
        except OasrError as raised:
            error = raised
        self.report("stream", "cancelled", time.monotonic() - begin, error)


class Uploader(OasrUser):
    """Transcribes whole files."""

    weight = 1
    wait_time = between(1, 5)

    @task
    def upload(self) -> None:
        number = self.rng.randrange(len(SPEECH.files))
        begin = time.monotonic()
        try:
            text = self.connections.whole.transcribe_file(SPEECH.files[number]).text
        except OasrError as error:
            self.report("offline", "file", time.monotonic() - begin, error)
            return
        self.report(
            "offline", "file", time.monotonic() - begin, self.compare(text, SPEECH.file_texts[number]), len(text)
        )
