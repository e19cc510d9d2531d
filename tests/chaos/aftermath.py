"""What must hold behind every case."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oasr_backend.serve import RunningServer
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.neighbours import Neighbours
from tests.server.support import (
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


@dataclass
class Case:
    """What a case says of itself when it is through."""

    neighbours: Neighbours
    amount: str = ""
    note: str = ""


@contextmanager
def unharmed(server: RunningServer, seed: int, ledger: Ledger, name: str) -> Iterator[Case]:
    """A case that the server and everybody else must outlive as they are; what is found goes to the ledger."""
    processes = processes_of(server)
    with Neighbours(urls_of(server), seed) as neighbours:
        case = Case(neighbours)
        yield case
    back_s = seconds_until_back(server)
    assert_serves(server)
    assert processes_of(server) == processes
    ledger.add(Finding(name, case.amount, neighbours.texts, neighbours.longest_s, back_s, case.note))
