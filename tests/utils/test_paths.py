from pathlib import Path

import pytest

from oasr_backend.utils.paths import data_dir


def test_a_wheel_carries_its_data_inside_the_package(tmp_path: Path) -> None:
    package = tmp_path / "oasr_backend"
    inside = package / "_data" / "assets"
    inside.mkdir(parents=True)
    (tmp_path / "assets").mkdir()
    assert data_dir("assets", package) == inside


def test_a_clone_keeps_its_data_beside_the_package(tmp_path: Path) -> None:
    beside = tmp_path / "assets" / "demo-en"
    beside.mkdir(parents=True)
    assert data_dir("assets/demo-en", tmp_path / "oasr_backend") == beside


def test_missing_data_is_one_sentence_with_both_places(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"model_repository of this package is missing .*; reinstall oasr-triton"
    ):
        data_dir("model_repository", tmp_path / "oasr_backend")
