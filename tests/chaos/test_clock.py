"""A wall clock that jumps, as when a machine wakes up or its time is set."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.chaos.aftermath import assert_serves, processes_of, seconds_until_back, urls_of
from tests.chaos.conftest import IDLE_S
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.neighbours import Neighbours
from tests.server.support import (
    CHUNK,
    Stream,
    Wire,
    all_clips,
    counter,
    cut,
    eventually,
    metrics,
    references,
    streams_are_back,
)

JUMPS = (3600.0, -86400.0, 31536000.0, 0.0)
"""Seconds that the clock is off: an hour ahead, a day back, a year ahead, and right again."""


def set_off(clock: Path, seconds: float) -> None:
    """From now on the server's clock is so far ahead of the true one."""
    new = clock.with_name("new")
    new.write_text(f"{seconds:+.0f}s\n")
    new.replace(clock)


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The file that says how far the server's clock is off, for libfaketime."""
    path = tmp_path / "clock"
    set_off(path, 0.0)
    return path


@pytest.fixture
def jumping_server(tritonserver: None, repository: Path, clock: Path) -> Iterator[RunningServer]:
    library = os.environ.get("FAKETIME_LIBRARY", "")
    if not Path(library).is_file():
        pytest.skip("needs libfaketime, by whose path FAKETIME_LIBRARY calls it: run `make chaos`")
    environment = {
        "OASR_DTYPE": "float32",
        "OASR_STREAMING_IDLE_SECONDS": str(IDLE_S),
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        # As the kernel has it: the monotonic clock knows nothing of what is done to the other.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    with running_server(
        demo_checkpoint_dir(),
        model_repository=repository,
        environment=environment,
        ready_timeout_s=240,
        exit_timeout_s=5,
    ) as running:
        yield running


def clocks_are_off_by(server: RunningServer, seconds: float) -> bool:
    """Whether every model tells a time that is so far from the true one."""
    told = [value for name, value in metrics(server).items() if name.startswith("oasr_model_heartbeat")]
    return all(abs(value - time.time() - seconds) < 60 for value in told)


@pytest.mark.timeout(600)
def test_jumps(jumping_server: RunningServer, clock: Path, seed: int, ledger: Ledger) -> None:
    """Streams go on, none is freed too soon, and one that is abandoned is freed in time."""
    server = jumping_server
    processes = processes_of(server)
    pieces = cut(all_clips(), CHUNK)
    share = -(-len(pieces) // len(JUMPS))
    reaped = counter(server, "sequences_reaped")
    with Neighbours(urls_of(server), seed) as neighbours, Wire(server) as wire:
        slow = Stream(wire)
        for number, jump in enumerate(JUMPS):
            set_off(clock, jump)
            # The server sees it, or this would show nothing.
            assert eventually(lambda off=jump: clocks_are_off_by(server, off), 30)
            turn = pieces[number * share : (number + 1) * share]
            for piece in turn:
                text = slow.send(piece, end=piece is pieces[-1])
            neighbours.mark()
            neighbours.wait_for_a_round()
        assert text == " ".join(references().values())
        assert counter(server, "sequences_reaped") == reaped
        abandoned = Stream(wire)
        abandoned.send(pieces[0])
        set_off(clock, -86400.0)
    began = time.monotonic()
    # By the clock that cannot jump, whatever the other one says.
    assert eventually(lambda: streams_are_back(server), 3 * IDLE_S)
    back_s = time.monotonic() - began
    set_off(clock, 0.0)
    seconds_until_back(server)
    values = metrics(server)
    sums = {name: value for name, value in values.items() if "_seconds_sum" in name}
    assert sums and all(0 <= value < 3600 for value in sums.values()), sums
    assert_serves(server)
    assert processes_of(server) == processes
    note = f"{', '.join(f'{jump:+.0f}' for jump in JUMPS)} s; none freed too soon"
    ledger.add(Finding("clock jumps", f"{len(JUMPS)} jumps", neighbours.texts, neighbours.longest_s, back_s, note))
