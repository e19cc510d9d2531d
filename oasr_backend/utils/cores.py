"""How many cores this process may use, and how the models share them."""

import math
import os
from collections.abc import Collection
from pathlib import Path


def divide_threads(cores: int) -> tuple[int, int]:
    """Threads of the (streaming, offline) process.

    On one or two cores both get them all, for they rarely work at once; above that streaming, which has a deadline,
    gets 60 % rounded up and offline the rest.
    """
    if cores <= 2:
        return cores, cores
    streaming = min(math.ceil(cores * 3 / 5), cores - 1)
    return streaming, cores - streaming


def threads_for(models: Collection[str], cores: int) -> tuple[int, int]:
    """`divide_threads`, unless only one of the two engines is served: then it gets every core."""
    both = {"oasr_streaming", "oasr_offline"} <= set(models)
    return divide_threads(cores) if both else (cores, cores)


def available_cores() -> int:
    """Cores in the affinity mask, capped by the CPU quota of the control group; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


def cpu_quota(mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """The CPU quota of this process in cores, the strictest of its groups (versions 1 and 2); None = unlimited."""
    quotas = []
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            quotas += [_quota_v2(folder) for folder in _upwards(mount, group)]
        elif "cpu" in controllers.split(","):
            root = next((mount / name for name in ("cpu", controllers) if (mount / name).is_dir()), mount)
            quotas += [_quota_v1(folder) for folder in _upwards(root, group)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _upwards(root: Path, group: str) -> list[Path]:
    # Inside a container the path names a group of the host: what is mounted here is the group itself, the root.
    folder = root / group.strip("/")
    return [path for path in (folder, *folder.parents) if path == root or root in path.parents]


def _quota_v2(folder: Path) -> float | None:
    fields = _read(folder / "cpu.max").split()
    return _cores(fields[0], fields[1]) if len(fields) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    return _cores(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _cores(quota: str, period: str) -> float | None:
    try:
        cores = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return cores if cores > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
