"""Kernels that are never asked for again do not stay."""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import torch
from oasr_backend.layers.linear import Linear
from oasr_backend.utils.kernels import keep_kernels

if {count}:
    keep_kernels({count})

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

with torch.inference_mode():
    product = Linear(torch.randn(256, 64), torch.randn(256), torch.device("cpu"), torch.float32)
    x = torch.randn(400, 64)
    product(x)
    before = resident()
    for rows in range(100, 400):
        product(x[:rows])
print(resident() - before)
"""


def _rise_mib(count: int, **environment: str) -> float:
    """Memory that 300 numbers of rows cost; `count` 0 keeps what the libraries do."""
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(count=count)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_so_many_are_kept_unless_the_environment_says_otherwise() -> None:
    unbounded = _rise_mib(0)
    if unbounded < 20:
        pytest.skip(f"kernels take no memory to speak of on this processor ({unbounded:.0f} MiB)")
    assert _rise_mib(16) < unbounded / 3
    chosen = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "1024", "LRU_CACHE_CAPACITY": "1024"}
    assert _rise_mib(16, **chosen) > unbounded / 2
