"""What is freed stays in the process."""

import subprocess
import sys

import pytest

_PROGRAM = """
import resource, threading
import numpy as np
from oasr_backend.utils.malloc import keep_freed_memory

keeps = {keeps} and keep_freed_memory()

def work():
    global faults
    for turn in range(22):
        if turn == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.full(10_000_000, 1.0)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

thread = threading.Thread(target=work)
thread.start()
thread.join()
print(int(keeps), faults)
"""


def _run(keeps: bool) -> tuple[bool, int]:
    program = _PROGRAM.format(keeps=keeps)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    kept, faults = done.stdout.split()
    return kept == "1", int(faults)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is a call of glibc")
def test_large_arrays_are_not_mapped_anew_on_a_thread_of_its_own() -> None:
    kept, faults = _run(True)
    if not kept:
        pytest.skip("this C library has no mallopt")
    _, faults_before = _run(False)
    assert faults < faults_before / 10
