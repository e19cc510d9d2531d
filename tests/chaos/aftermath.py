"""What must hold behind every case."""

import time

from oasr_backend.serve import RunningServer
from tests.server.support import (
    DECODE,
    OFFLINE,
    STREAMING,
    Wire,
    clip,
    clip_path,
    eventually,
    model_process,
    references,
    settled,
    streamed,
    streams_are_back,
)

BACK_WITHIN_S = 60.0


def urls_of(server: RunningServer) -> dict[str, str]:
    """HOST:PORT of each protocol."""
    return {"grpc": server.grpc_url, "http": server.http_url}


def seconds_until_back(server: RunningServer) -> float:
    """Seconds until no stream and no clip is open, and every slot and page free; fails where that does not come."""
    began = time.monotonic()
    assert eventually(lambda: streams_are_back(server), BACK_WITHIN_S), "slots or pages are missing"
    values = settled(server)
    for name in ("waiting", "running"):
        assert values[f'oasr_engine_{name}{{model="{OFFLINE}"}}'] == 0
    return time.monotonic() - began


def processes_of(server: RunningServer) -> dict[str, int]:
    """The server and its engines; none of them is ever started anew under the same number."""
    models = {name: model_process(server, name) for name in (STREAMING, OFFLINE)}
    return {"tritonserver": server.pid, **models}


def assert_serves(server: RunningServer) -> None:
    """Every model gives the right text."""
    assert streamed(server, [clip("digits.flac")]) == references()["digits.flac"]
    with Wire(server, "http") as wire:
        assert wire.transcribe(clip("command.flac")) == references()["command.flac"]
        assert wire.transcribe_file(clip_path("number.flac").read_bytes()) == references()["number.flac"]


__all__ = ["DECODE", "assert_serves", "processes_of", "seconds_until_back", "urls_of"]
