"""The benchmark of graphs where there is nothing to capture."""

import sys
from pathlib import Path

import pytest
import torch

from benchmarks import graphs


def test_without_a_device_it_says_so_and_makes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["graphs", "--json", str(tmp_path / "graphs.json")])
    with pytest.raises(SystemExit) as ended:
        graphs.main()
    assert ended.value.code == graphs.REFUSAL and "needs a CUDA device" in graphs.REFUSAL
    assert not list(tmp_path.iterdir())
