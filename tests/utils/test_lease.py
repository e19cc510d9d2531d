"""Signs of life of processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oasr_backend.utils import lease
from oasr_backend.utils.lease import DIRECTORY_VARIABLE, Lease, abandoned, take_lease

HOLDER = """
import sys
from pathlib import Path
from oasr_backend.utils.lease import Lease
held = Lease(Path(sys.argv[1]), "model.of.somebody")
print("held", flush=True)
sys.stdin.readline()
held.give_back()
"""


def holder(directory: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(lease.__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_process_that_is_killed_is_told_of_and_one_that_lives_is_not(tmp_path: Path) -> None:
    mine = Lease(tmp_path, "mine")
    with holder(tmp_path) as process:
        assert abandoned(tmp_path) == []
        process.kill()
    assert abandoned(tmp_path) == ["model.of.somebody"]
    mine.give_back()
    assert abandoned(tmp_path) == ["model.of.somebody"]


def test_a_killed_process_that_nobody_has_waited_for_is_told_of(tmp_path: Path) -> None:
    process = holder(tmp_path)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert abandoned(tmp_path) == ["model.of.somebody"]
    process.communicate()


def test_a_lease_that_is_given_back_leaves_nothing(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.communicate("\n")
    assert list(tmp_path.iterdir()) == []
    mine = Lease(tmp_path, "mine")
    mine.give_back()
    mine.give_back()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_tells_of_nobody(tmp_path: Path) -> None:
    """A server that has ended takes it along, while somebody may still look."""
    assert abandoned(tmp_path / "gone") == []


def test_without_a_folder_none_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    assert take_lease("model") is None
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    held = take_lease("model")
    assert held is not None and len(list(tmp_path.iterdir())) == 1
    held.give_back()
