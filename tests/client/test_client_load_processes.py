"""The processes of a load and their end, against a port where nobody answers."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

PATIENCE_S = 60.0
LOAD = """
import sys
import numpy as np
from oasr_client.errors import OasrError
from oasr_client.load.processes import Processes
from oasr_client.load.streams import Target

if __name__ == "__main__":
    waves = [np.zeros(16000, np.int16)] * 4
    try:
        with Processes(2) as processes:
            run = processes.paced(Target(sys.argv[1], timeout_s=float(sys.argv[2])), waves, float("inf"))
        print(len(run.texts), run.texts.count(None), *(type(one).__name__ for one in run.errors))
    except OasrError as error:
        sys.exit(f"oasr: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
"""


@dataclass(frozen=True)
class Load:
    """A load of two processes in a process group of its own."""

    process: "subprocess.Popen[str]"
    port: socket.socket

    def wait_until_busy(self) -> None:
        """Until both have connected."""
        self.port.settimeout(PATIENCE_S)
        for _ in range(2):
            self.port.accept()

    def end(self) -> tuple[int, str]:
        """Exit status and what was said; nothing may be left of the group."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert eventually(lambda: not living(self.process.pid))
        return self.process.returncode, out + err


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def living(group: int) -> dict[int, str]:
    """Command lines of the processes of a group, zombies left out."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, _, of_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                found[int(entry.name)] = (entry / "cmdline").read_text()
    return found


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[float], Load]]:
    """Begins a load whose requests wait for so many seconds."""
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    begun: list[Load] = []

    def start(timeout_s: float) -> Load:
        port = socket.create_server(("127.0.0.1", 0))
        process = subprocess.Popen(
            [sys.executable, str(script), f"127.0.0.1:{port.getsockname()[1]}", str(timeout_s)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(Load(process, port))
        return begun[-1]

    yield start
    for load in begun:
        with suppress(ProcessLookupError):
            os.killpg(load.process.pid, signal.SIGKILL)
        load.process.communicate()
        load.port.close()


def test_what_its_processes_meet_is_told_of_the_whole_load(begin: Callable[[float], Load]) -> None:
    status, told = begin(0.5).end()
    assert (status, told.split()) == (0, ["4", "4", *["ServerTimeout"] * 4]), told


def test_an_interrupt_ends_it_without_a_word_of_its_processes(begin: Callable[[float], Load]) -> None:
    load = begin(600)
    load.wait_until_busy()
    # As a terminal does it.
    os.killpg(load.process.pid, signal.SIGINT)
    assert load.end() == (130, "")


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_its_processes_end_with_it_however_it_ends(begin: Callable[[float], Load], sign: signal.Signals) -> None:
    load = begin(600)
    load.wait_until_busy()
    load.process.send_signal(sign)
    status, told = load.end()
    assert status == -sign
    assert "Traceback" not in told


def test_a_process_that_is_lost_ends_it_with_a_sentence(begin: Callable[[float], Load]) -> None:
    load = begin(600)
    load.wait_until_busy()
    workers = [one for one, command in living(load.process.pid).items() if "spawn_main" in command]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    status, told = load.end()
    assert status == 1
    assert told.startswith("oasr: a process of the load ended with status -9 before its streams did")
    assert told.count("\n") == 1
