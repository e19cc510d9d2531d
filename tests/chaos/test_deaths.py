"""Parts of the server that die or are stopped under load, while clients resume."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oasr_backend.server.process import group_members
from oasr_backend.server.workspace import shared_memory_files
from tests.chaos.aftermath import assert_serves, seconds_until_back
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.neighbours import Neighbours
from tests.server.deadly_model import DEADLY_SAMPLES, deadly_repository
from tests.server.host import Host
from tests.server.support import DECODE, OFFLINE, STREAMING, TRANSCRIBE, Stream, Wire, model_process, outcome_of

ENDS_WITHIN_S = 30.0


@pytest.fixture
def host(tritonserver: None, tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    try:
        yield host
    finally:
        host.stop()


def kill_engine(host: Host) -> None:
    with Wire(host.server) as wire:
        outcome_of(lambda: Stream(wire).send(np.zeros(DEADLY_SAMPLES, dtype=np.float32)))


def kill_model(host: Host) -> None:
    os.kill(model_process(host.server, STREAMING), signal.SIGKILL)


def kill_other_model(host: Host) -> None:
    os.kill(model_process(host.server, OFFLINE), signal.SIGKILL)


def kill_server(host: Host) -> None:
    os.kill(host.server.pid, signal.SIGKILL)


def stop_server(host: Host) -> None:
    # Of its own, as from a shell; a launcher that asks for it waits for the end.
    threading.Thread(target=host.server.stop, daemon=True).start()


def freeze_model(host: Host) -> None:
    """The process stays, but answers nobody: what a health check is for, which is played here."""
    os.kill(model_process(host.server, STREAMING), signal.SIGSTOP)
    time.sleep(3)
    host.server.stop(force=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("act", "case"),
    [
        (kill_engine, "the engine's thread dies"),
        (kill_model, "the streaming model's process is killed"),
        (kill_other_model, "the offline model's process is killed"),
        (kill_server, "the server is killed"),
        (stop_server, "SIGTERM"),
        (freeze_model, "the streaming model's process hangs, and the server is restarted for it"),
    ],
)
def test_streams_outlive(
    host: Host, tmp_path: Path, seed: int, ledger: Ledger, act: Callable[[Host], None], case: str
) -> None:
    """The server ends by itself, leaves nothing, and is started again as its supervisor would; no word is lost."""
    models = (STREAMING, OFFLINE, DECODE, TRANSCRIBE)
    host.start(exit_timeout_s=2, model_repository=deadly_repository(tmp_path / "models", *models))
    urls = {protocol: host.url(protocol) for protocol in ("grpc", "http")}
    with Neighbours(urls, seed, patient=True) as neighbours:
        server = host.server
        began = time.monotonic()
        act(host)
        assert server.wait(ENDS_WITHIN_S), "the server has not ended"
        ended_s = time.monotonic() - began
        server.stop(force=True)
        assert group_members(server.pid) == []
        assert shared_memory_files(server.shm_prefix) == []
        host.start(exit_timeout_s=2)
        back_s = time.monotonic() - began
        neighbours.mark()
        neighbours.wait_for_a_round()
    seconds_until_back(host.server)
    assert_serves(host.server)
    resumes = sum(account.resumes for account in neighbours.accounts)
    note = f"ended after {ended_s:.1f} s; {resumes} streams resumed"
    ledger.add(Finding(case, "once", neighbours.texts, neighbours.longest_s, back_s, note))
