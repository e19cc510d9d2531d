"""Checkpoints side by side as versions of a model: the folders that are made for Triton."""

import json
from pathlib import Path

import pytest

from oasr_backend.server.errors import LaunchError
from oasr_backend.server.versions import has_engine, write_versions
from oasr_backend.utils.paths import model_repository_dir


def test_models_with_an_engine_are_known_by_their_configuration() -> None:
    names = {folder.name for folder in model_repository_dir().iterdir() if has_engine(folder)}
    assert names == {"oasr_streaming", "oasr_offline"}


def test_each_version_runs_the_same_code_with_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    source = model_repository_dir() / "oasr_streaming"
    write_versions(source, tmp_path / "oasr_streaming", {1: Path("/may"), 20: Path("/june")})
    config = (tmp_path / "oasr_streaming" / "config.pbtxt").read_text()
    assert config.startswith((source / "config.pbtxt").read_text())
    assert "version_policy { specific { versions: [ 1, 20 ] } }" in config
    for number, checkpoint in (("1", "/may"), ("20", "/june")):
        folder = tmp_path / "oasr_streaming" / number
        assert (folder / "model.py").resolve() == (source / "1" / "model.py").resolve()
        assert json.loads((folder / "settings.json").read_text()) == {"checkpoint": checkpoint}


def test_a_model_that_chooses_its_versions_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.pbtxt").write_text("version_policy { latest { num_versions: 2 } }")
    with pytest.raises(LaunchError, match="leave --model-version out"):
        write_versions(tmp_path / "mine", tmp_path / "copy", {1: Path("/may")})
