"""One server process and the group of its children."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oasr_backend.server import guard
from oasr_backend.server.errors import LaunchError

_KILL_WAIT_S = 10.0


class ServerProcess:
    """Starts a command in a session of its own; when the command ends, however it does, its whole group is killed.

    The kernel sends the command SIGTERM when this process dies. A thread of its own starts the command and waits for
    it, because the kernel takes the end of the starting thread for the end of the parent.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path, inherit: Sequence[int]
    ) -> None:
        """Raises LaunchError when the command cannot be started; output is appended to `log`."""
        self._guarded = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), *command]
        self._environment = dict(environment)
        self._directory = directory
        self._log = log
        self._inherit = tuple(inherit)
        self._started = threading.Event()
        self._ended = threading.Event()
        self._signalling = threading.Lock()
        self._reaped = False
        self._failure: OSError | None = None
        self.pid = 0
        self.returncode: int | None = None
        threading.Thread(target=self._keep, name="tritonserver-keeper", daemon=True).start()
        self._started.wait()
        if self._failure:
            raise LaunchError(f"the server process cannot be started: {self._failure}")

    @property
    def ended(self) -> bool:
        """True once the command has ended and its group is gone."""
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end; returns whether it came."""
        return self._ended.wait(timeout_s)

    def stop(self, grace_s: float, impatient: Callable[[], bool] = lambda: False) -> bool:
        """Asks the command to end; kills the group after `grace_s`, on an interrupt, or once `impatient` is true.

        Returns whether it ended when asked.
        """
        deadline = time.monotonic() + grace_s
        try:
            self._send(signal.SIGTERM, group=False)
            while not self.wait(0.1):
                if impatient() or time.monotonic() > deadline:
                    self.kill()
                    return False
        except BaseException:
            self.kill()
            raise
        return True

    def kill(self) -> None:
        """Kills the group and waits until it is gone."""
        self._send(signal.SIGKILL, group=True)
        self.wait(_KILL_WAIT_S)

    def _send(self, number: signal.Signals, *, group: bool) -> None:
        with self._signalling, contextlib.suppress(ProcessLookupError):
            if not self._reaped:
                (os.killpg if group else os.kill)(self.pid, number)

    def _keep(self) -> None:
        try:
            with open(self._log, "ab") as log:
                process = subprocess.Popen(
                    self._guarded,
                    env=self._environment,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=self._inherit,
                )
        except OSError as error:
            self._failure = error
            self._started.set()
            return
        self.pid = process.pid
        self._started.set()
        # Not reaped yet: its number, which is that of the group, cannot pass to another process meanwhile.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self._send(signal.SIGKILL, group=True)
        deadline = time.monotonic() + _KILL_WAIT_S / 2
        while group_members(process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._signalling:
            self.returncode = process.wait()
            self._reaped = True
        self._ended.set()


def group_members(group: int) -> list[int]:
    """The living processes of a process group, zombies left out."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in the second field may hold spaces and brackets; state, parent and group follow it.
            state, _, of_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if int(of_group) == group and state not in "ZX":
            members.append(int(entry.name))
    return members
