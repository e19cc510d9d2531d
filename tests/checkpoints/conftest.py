"""Checkpoint directories to break."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.directory import CheckpointDirectory
from tests.golden.cases import CASES, DATA


@pytest.fixture
def make_directory(tmp_path: Path) -> Callable[[str], CheckpointDirectory]:
    """A copy of a recorded checkpoint."""

    def make(case: str) -> CheckpointDirectory:
        path = tmp_path / case
        path.mkdir()
        for name in ("train.yaml", "units.txt", "global_cmvn", "final.pt", "bpe.model"):
            if (DATA / case / name).is_file():
                shutil.copyfile(DATA / case / name, path / name)
        return CheckpointDirectory(path)

    return make


@pytest.fixture
def directory(make_directory: Callable[[str], CheckpointDirectory]) -> CheckpointDirectory:
    return make_directory(CASES[0])
