"""Stopping a server that is at work."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.server.process import group_members
from oasr_backend.server.workspace import shared_memory_files
from tests.server.support import (
    CHUNK,
    PROTOCOLS,
    STREAMING,
    Stream,
    Wire,
    all_clips,
    cut,
    references,
)

pytestmark = pytest.mark.usefixtures("tritonserver")

CLIENTS = 8
PIECES = cut(all_clips(), CHUNK)
TEXT = " ".join(references().values())


def streaming_server(exit_timeout_s: int) -> Any:
    environment = {"OASR_DTYPE": "float32"}
    return running_server(
        models=(STREAMING,), environment=environment, ready_timeout_s=240, exit_timeout_s=exit_timeout_s
    )


@dataclass
class Client:
    """Streams the clips again and again until it is told to go or gets an error."""

    protocol: str
    finals: list[str] = field(default_factory=list)
    answered: int = 0
    """Requests of the last stream."""
    error: Exception | None = None

    def run(self, server: RunningServer, on_work: Callable[[], Any], should_go: Callable[[], bool]) -> None:
        with Wire(server, self.protocol) as wire:
            while not should_go():
                stream = Stream(wire)
                self.answered = 0
                for piece in PIECES:
                    try:
                        text = stream.send(piece, end=piece is PIECES[-1])
                    except (InferenceServerException, HTTPConnectionClosed, OSError) as error:
                        self.error = error
                        return
                    self.answered += 1
                    if not self.finals and self.answered == 3:
                        on_work()
                self.finals.append(text)


def stop_under_load(server: RunningServer, http_clients_go: bool) -> list[Client]:
    """Stops the server while all clients are in the middle of a stream; returns when every client has ended."""
    clients = [Client(PROTOCOLS[number % 2]) for number in range(CLIENTS)]
    busy = threading.Barrier(CLIENTS + 1)
    stopping = threading.Event()

    def run(client: Client) -> None:
        goes = http_clients_go and client.protocol == "http"
        client.run(server, lambda: busy.wait(60), lambda: goes and stopping.is_set())

    with ThreadPoolExecutor(CLIENTS) as pool:
        runs = [pool.submit(run, client) for client in clients]
        busy.wait(60)
        stopping.set()
        # Where an HTTP client keeps its connection, the exit timeout cuts it off.
        assert server.stop() is http_clients_go
        for one in runs:
            one.result(30)
    return clients


def assert_nothing_is_left(server: RunningServer) -> None:
    assert not server.is_alive()
    assert group_members(server.pid) == []
    assert shared_memory_files(server.shm_prefix) == []


def test_streams_that_are_open_at_a_stop_get_their_whole_text() -> None:
    """New streams are refused; an HTTP client has to give its connection up, for the server waits for those."""
    with streaming_server(exit_timeout_s=60) as server:
        clients = stop_under_load(server, http_clients_go=True)
        assert server.returncode == 0
    for client in clients:
        assert client.finals
        assert set(client.finals) == {TEXT}
        if client.protocol == "grpc":
            assert isinstance(client.error, InferenceServerException)
            # The server no longer knows a model that is being unloaded.
            assert client.error.status() in ("StatusCode.UNAVAILABLE", "StatusCode.NOT_FOUND")
            assert client.answered == 0
        else:
            assert client.error is None
    assert_nothing_is_left(server)


def test_a_stop_cuts_off_who_goes_on_at_its_timeout_and_nobody_hangs() -> None:
    with streaming_server(exit_timeout_s=3) as server:
        clients = stop_under_load(server, http_clients_go=False)
    for client in clients:
        assert set(client.finals) <= {TEXT}
        assert client.error is not None
        assert "timed out" not in str(client.error)
        if isinstance(client.error, InferenceServerException):
            assert client.error.status() in ("StatusCode.UNAVAILABLE", "503")
    assert_nothing_is_left(server)
