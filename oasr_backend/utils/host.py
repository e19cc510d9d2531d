"""What the machine offers this process."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def memory_bytes() -> int:
    """Memory this process may use: the machine's, cut by a container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(_CGROUP / "memory.max")
    return min(total, int(limit)) if limit.isdecimal() else total


def has_bfloat16_units() -> bool:
    """Whether the processor multiplies bfloat16 natively (AMX or AVX512-BF16)."""
    return bool(_cpu_flags() & {"amx_bf16", "avx512_bf16"})


def processor_name() -> str:
    """The processor as its maker calls it."""
    return _cpu_field("model name") or "CPU"


def _cpu_flags() -> frozenset[str]:
    return frozenset((_cpu_field("flags") or _cpu_field("Features")).split())


def _cpu_field(wanted: str) -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() == wanted:
            return value.strip()
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
