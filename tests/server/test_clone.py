"""A clone that is used as it lies there, while another copy of the packages is installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import oasr_backend
import oasr_client
from oasr_backend.utils.paths import assets_dir, model_repository_dir
from tests.server.support import DECODE, TIMEOUT_S

START = f"""
from oasr_backend.serve import running_server
with running_server(models=({DECODE!r},), ready_timeout_s=100, exit_timeout_s=5):
    pass
"""


@pytest.mark.usefixtures("tritonserver")
def test_the_models_run_the_code_that_started_the_server(tmp_path: Path) -> None:
    clone, told = tmp_path / "clone", tmp_path / "told"
    for package, parent in ((oasr_backend, clone), (oasr_client, clone / "client")):
        folder = Path(package.__file__ or "").parent
        shutil.copytree(folder, parent / folder.name, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    (clone / "model_repository").symlink_to(model_repository_dir())
    (clone / "assets").symlink_to(assets_dir())
    with open(clone / "oasr_backend" / "triton" / "audio_decode_model.py", "a") as module:
        module.write(f"\nwith open({str(told)!r}, 'w') as file:\n    file.write(__file__)\n")
    search_path = os.pathsep.join([str(clone), str(clone / "client")])
    done = subprocess.run(
        [sys.executable, "-c", START],
        env={**os.environ, "PYTHONPATH": search_path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert told.exists(), "the models run another copy of the code"
    assert told.read_text().startswith(str(clone))
