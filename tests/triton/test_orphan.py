"""A model ends when its server has: real processes, none of which is Triton."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from oasr_backend.utils.paths import assets_dir

SERVER = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]]).wait()"
MODEL = """
import pathlib, time
from oasr_backend.triton.orphan import end_with_server
pathlib.Path("starts").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
end_with_server()
pathlib.Path("watches").touch()
time.sleep(600)
"""


class Server:
    """A process with a model in its group, whose output ends when both have."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, MODEL],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(assets_dir().parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )

    def wait_for(self, name: str) -> None:
        deadline = time.monotonic() + 60
        while not (self._directory / name).exists():
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self) -> None:
        """The server alone, as the kernel does when memory runs out."""
        self._process.kill()
        self._process.wait()

    def rest(self) -> str:
        """What both said, once both have ended."""
        return self._process.communicate(timeout=60)[0]

    def close(self) -> None:
        """Ends what is left of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.mark.parametrize("when", ["before it looks", "while it watches"])
def test_a_model_ends_with_its_server(when: str, tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.wait_for("starts")
        if when == "before it looks":
            server.kill()
            (tmp_path / "go").touch()
        else:
            (tmp_path / "go").touch()
            server.wait_for("watches")
            server.kill()
        assert "the server is gone; ending its model" in server.rest()
    finally:
        server.close()


def test_a_model_lives_as_long_as_its_server(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        server.wait_for("starts")
        (tmp_path / "go").touch()
        server.wait_for("watches")
        with pytest.raises(subprocess.TimeoutExpired):
            # Longer than it takes to look again.
            server._process.communicate(timeout=3)
    finally:
        server.close()
