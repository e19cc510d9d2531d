"""What the processes of a server use."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from oasr_backend.server.process import group_members

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class Usage:
    """A process at one moment; the role is `tritonserver`, or the model of a stub."""

    pid: int
    role: str
    cpu_s: float
    resident_mib: float


def cpu_seconds(stat: str) -> float:
    """User and system time of a line of /proc/PID/stat."""
    # The name in the second field may hold spaces and brackets; times are fields 14 and 15.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def role_of(command: str) -> str:
    """The role that a command line, its words separated by zeros, shows."""
    words = [word for word in command.split("\0") if word]
    model = next((Path(word) for word in words[1:] if word.endswith("model.py")), None)
    if words and words[0].endswith(_STUB) and model is not None:
        # MODEL/VERSION/model.py
        return model.parts[-3]
    return Path(words[0]).name if words else ""


def server_usage(leader: int) -> dict[str, Usage]:
    """The living processes of the group that a server leads, by role."""
    usages = {}
    for pid in group_members(leader):
        folder = Path("/proc") / str(pid)
        try:
            stat = (folder / "stat").read_text()
            pages = int((folder / "statm").read_text().split()[1])
            role = role_of((folder / "cmdline").read_text())
        except (OSError, ValueError):
            # It ended meanwhile.
            continue
        usages[role] = Usage(pid, role, cpu_seconds(stat), pages * os.sysconf("SC_PAGE_SIZE") / _MIB)
    return usages


class CpuMeter:
    """CPU time of this process (`client`) and of a server's processes since the start of the measurement."""

    def __init__(self, leader: int):
        self._leader = leader
        self._before = self._now()
        self._started = time.monotonic()

    def cores(self) -> dict[str, float]:
        """Cores that each kept busy, on average."""
        elapsed = time.monotonic() - self._started
        now = self._now()
        return {role: (seconds - self._before.get(role, 0.0)) / elapsed for role, seconds in now.items()}

    def _now(self) -> dict[str, float]:
        server = {role: usage.cpu_s for role, usage in server_usage(self._leader).items()}
        return {"client": time.process_time(), **server}
