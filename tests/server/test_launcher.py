"""The launcher against the real tritonserver, nearly always with models that need no torch."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc

import oasr_backend
from oasr_backend.serve import LaunchError, RunningServer, running_server
from oasr_backend.server.process import group_members
from oasr_backend.server.workspace import shared_memory_files, sweep
from oasr_backend.utils.paths import demo_checkpoint_dir, model_repository_dir
from tests.server.support import (
    DECODE,
    STREAMING,
    TIMEOUT_S,
    clip,
    copied_repository,
    eventually,
    references,
    text_of,
)

pytestmark = pytest.mark.usefixtures("tritonserver")

ROOT = Path(oasr_backend.__file__).parents[1]
CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
MODEL = """
import json, os, subprocess, sys, time

class TritonPythonModel:
    def initialize(self, args):
        {initialize}

    def execute(self, requests):
        return []

    def finalize(self):
        {finalize}
"""
SERVE = (
    "import argparse, sys; from oasr_backend import serve; parser = argparse.ArgumentParser(); "
    "serve.add_arguments(parser); sys.exit(serve.run(parser.parse_args()))"
)


def add_model(repository: Path, name: str = "plain", initialize: str = "pass", finalize: str = "pass") -> Path:
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG)
    (repository / name / "1" / "model.py").write_text(MODEL.format(initialize=initialize, finalize=finalize))
    return repository


def plain_server(repository: Path, **others: Any) -> AbstractContextManager[RunningServer]:
    return running_server(model_repository=repository, exit_timeout_s=5, ready_timeout_s=60, **others)


def decodes(pid: int) -> bool:
    return f"/{DECODE}/1/model.py".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


class Serving:
    """An `oasr serve` process."""

    def __init__(self, process: "subprocess.Popen[str]", output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        return self._output.read_text()

    def server_pid(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self._keeper()}/children").read_text().split()[0])

    def _keeper(self) -> str:
        tasks = Path(f"/proc/{self.process.pid}/task")
        return next(task.name for task in tasks.iterdir() if (task / "children").read_text().strip())


@contextmanager
def serving(repository: Path, output: Path, *arguments: str) -> Iterator[Serving]:
    """`oasr serve` on free ports, in a process of its own that is ready (or has ended) when yielded."""
    command = [sys.executable, "-c", SERVE, "--model-repository", str(repository)]
    command += ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'client'}"}
    with open(output, "w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, text=True)
    running = Serving(process, output)
    try:
        assert eventually(lambda: "ready;" in running.output or process.poll() is not None, 150), running.output
        yield running
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_stopped_server_leaves_no_process_no_shared_memory_and_no_file(tmp_path: Path) -> None:
    with plain_server(add_model(tmp_path)) as server:
        assert server.is_alive()
        assert len(group_members(server.pid)) == 2
        assert shared_memory_files(server.shm_prefix)
        directory = server.log_path.parent
        assert directory.stat().st_mode & 0o777 == 0o700
        assert "Started HTTPService" in server.log_text()
        assert server.log_tail(3).count("\n") == 2
    assert not server.is_alive()
    assert server.returncode == 0
    assert group_members(server.pid) == []
    assert shared_memory_files(server.shm_prefix) == []
    assert not directory.exists()


def test_a_killed_server_takes_its_model_processes_along(tmp_path: Path) -> None:
    spawn = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with plain_server(add_model(tmp_path, initialize=spawn)) as server:
        assert len(group_members(server.pid)) == 3
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait(15)
        assert not server.is_alive()
        assert group_members(server.pid) == []
    assert server.returncode == -signal.SIGKILL
    assert shared_memory_files(server.shm_prefix) == []


def test_a_server_that_does_not_end_is_killed_after_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasr_backend.server.running._UNLOAD_S", 0.5)
    with running_server(
        model_repository=add_model(tmp_path, finalize="time.sleep(600)"), exit_timeout_s=1, ready_timeout_s=60
    ) as server:
        begin = time.monotonic()
    assert time.monotonic() - begin < 15
    assert group_members(server.pid) == []
    assert shared_memory_files(server.shm_prefix) == []


def test_models_see_our_packages_the_settings_and_a_directory_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen.json"
    code = (
        "import importlib.util as util; print('Grüße'); json.dump({'prefix': sys.prefix, "
        "'environment': dict(os.environ), 'directory': os.getcwd(), 'encoding': open(os.devnull).encoding, "
        "'missing': [name for name in ('oasr_backend', 'oasr_client', 'numpy', 'pytest', 'mine') "
        f"if not util.find_spec(name)]}}, open({str(seen)!r}, 'w'))"
    )
    (tmp_path / "packages" / "mine").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setenv("OASR_DTYPE", "bfloat16")
    monkeypatch.setenv("OASR_STREAMING_DTYPE", "bfloat16")
    monkeypatch.setenv("OASR_OFFLINE_NUM_THREADS", "7")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    repository = add_model(tmp_path / "models", initialize=code)
    with plain_server(repository, environment={"OASR_DTYPE": "float32"}) as server:
        told = json.loads(seen.read_text())
        assert told["directory"] == str(server.log_path.parent)
        assert "Grüße" in server.log_text()
    assert told["prefix"] == sys.prefix
    assert told["missing"] == []
    assert told["encoding"] == "UTF-8"
    environment = told["environment"]
    assert environment["OASR_DTYPE"] == "float32"
    assert "OASR_STREAMING_DTYPE" not in environment
    assert environment["OASR_OFFLINE_NUM_THREADS"] == "7"
    assert int(environment["OASR_STREAMING_NUM_THREADS"]) >= 1
    assert "OMP_NUM_THREADS" not in environment
    assert "GOMP_SPINCOUNT" in environment or environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_only_the_chosen_models_are_loaded(tmp_path: Path) -> None:
    add_model(tmp_path, "broken", initialize="raise ValueError('never loaded')")
    with plain_server(add_model(tmp_path, "plain"), models=("plain",)) as server:
        assert server.is_alive()


def test_a_model_that_fails_to_load_is_named_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    repository = add_model(
        tmp_path / "models", "broken", initialize="raise ValueError('train.yaml says no; use another')"
    )
    with pytest.raises(LaunchError) as caught, plain_server(repository):
        pass
    assert str(caught.value) == (
        "the server did not start: model broken failed to load: train.yaml says no; use another"
    )
    assert list(temporary.iterdir()) == []


def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    repository = add_model(tmp_path, initialize="time.sleep(600)")
    slow = running_server(model_repository=repository, ready_timeout_s=1)
    with pytest.raises(LaunchError, match="not ready within 1 s"), slow:
        pass


def test_a_busy_port_is_named_with_its_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused = plain_server(add_model(tmp_path), grpc_port=port)
        with pytest.raises(LaunchError, match=rf"port {port} on 127\.0\.0\.1 is in use.*--grpc-port"), refused:
            pass


def test_two_servers_run_side_by_side(tmp_path: Path) -> None:
    repository = add_model(tmp_path)
    with plain_server(repository) as first, plain_server(repository) as second:
        assert len({first.http_url, first.grpc_url, first.metrics_url, second.http_url, second.grpc_url}) == 5
    assert group_members(first.pid) == group_members(second.pid) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with serving(add_model(tmp_path / "models"), tmp_path / "output", "--exit-timeout", "5") as serve:
        pid = serve.server_pid()
        assert len(group_members(pid)) == 2
        serve.process.send_signal(number)
        assert serve.process.wait(60) == 0, serve.output
    assert serve.output.endswith("oasr serve: stopped\n")
    assert "NVML" not in serve.output
    assert group_members(pid) == []


def test_serve_kills_on_the_second_signal(tmp_path: Path) -> None:
    repository = add_model(tmp_path / "models", finalize="time.sleep(600)")
    with serving(repository, tmp_path / "output") as serve:
        pid = serve.server_pid()
        serve.process.send_signal(signal.SIGINT)
        assert eventually(lambda: "stopping" in serve.output)
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(60) == 130, serve.output
    assert group_members(pid) == []


def test_serve_tells_that_the_server_ended_by_itself(tmp_path: Path) -> None:
    with serving(add_model(tmp_path / "models"), tmp_path / "output") as serve:
        os.kill(serve.server_pid(), signal.SIGKILL)
        assert serve.process.wait(60) == 1
    assert "oasr serve: the server ended by itself (killed by SIGKILL)" in serve.output


def test_a_server_that_has_lost_a_model_ends_so_that_it_is_started_again(tmp_path: Path) -> None:
    """Triton starts no process of a model anew, and stays ready without it."""
    repository = copied_repository(tmp_path / "models", DECODE)
    with serving(add_model(repository), tmp_path / "output") as serve:
        stubs = [pid for pid in group_members(serve.server_pid()) if decodes(pid)]
        os.kill(stubs[-1], signal.SIGKILL)
        assert serve.process.wait(60) == 1
    assert "oasr serve: the process of audio_decode is gone; ending the server" in serve.output
    assert "ended by itself" not in serve.output


def test_no_model_is_missed_when_the_whole_server_is_killed(tmp_path: Path) -> None:
    with running_server(models=(DECODE,), exit_timeout_s=5, ready_timeout_s=60) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert server.wait(30)
        time.sleep(1)
        assert server.lost_models == ()


def test_the_server_ends_with_a_killed_launcher_and_a_later_start_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where no start of another test cleans up before.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    with serving(add_model(tmp_path / "models"), tmp_path / "output", "--exit-timeout", "5") as serve:
        pid = serve.server_pid()
        directory = Path(f"/proc/{pid}/cwd").readlink()
        assert directory.parent == tmp_path / "temporary"
        sweep(directory.parent)
        assert directory.exists()
        serve.process.kill()
        serve.process.wait()
    assert eventually(lambda: not group_members(pid))
    assert directory.exists()
    sweep(directory.parent)
    assert not directory.exists()


def test_models_end_when_launcher_and_server_are_killed(tmp_path: Path) -> None:
    """Nobody is left then to end them."""
    repository = copied_repository(tmp_path / "models", DECODE)
    with serving(repository, tmp_path / "output") as serve:
        server = serve.server_pid()
        models = [pid for pid in group_members(server) if decodes(pid)]
        assert models
        serve.process.kill()
        serve.process.wait()
        os.kill(server, signal.SIGKILL)
    assert eventually(lambda: not group_members(server), 60)


def test_serve_tells_of_the_checkpoint_and_answers_by_all_names(tmp_path: Path) -> None:
    words = ("--models", STREAMING, "--compat-names", "--checkpoint", str(demo_checkpoint_dir()), "--exit-timeout", "5")
    with serving(model_repository_dir(), tmp_path / "output", *words) as serve:
        told = serve.output
        begin, end = told.index("  checkpoint "), told.index("oasr serve: loading the models")
        report = told[begin:end]
        for part in ("conformer, U2++", "230 units: BPE pieces", "128 at once", "streaming_wenet", "10240 samples"):
            assert part in report
        assert "oasr_offline" not in report and "attention_rescoring  clips" not in report
        (url,) = re.findall(r"ready; gRPC (\S+),", told)
        assert f"try: oasr stream talk.wav --realtime --server {url}\n" in told
        client = triton_grpc.InferenceServerClient(url)
        samples = clip("digits.flac")[None]
        wav, length = (
            triton_grpc.InferInput("WAV", samples.shape, "FP32"),
            triton_grpc.InferInput("WAV_LENS", [1, 1], "INT32"),
        )
        wav.set_data_from_numpy(samples)
        length.set_data_from_numpy(np.array([[samples.shape[1]]], dtype=np.int32))
        flags = {"sequence_id": 10086, "sequence_start": True, "sequence_end": True}
        answer = client.infer("streaming_wenet", [wav, length], client_timeout=TIMEOUT_S, **flags)
        client.close()
        assert text_of(answer) == references()["digits.flac"]
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(60) == 0, serve.output


def test_serve_refuses_with_one_line(tmp_path: Path) -> None:
    with serving(add_model(tmp_path / "models"), tmp_path / "output", "--checkpoint", "/nowhere") as serve:
        assert serve.process.wait(60) == 2
    assert serve.output.splitlines()[-1].startswith("oasr serve: checkpoint directory /nowhere does not exist")
    assert "Traceback" not in serve.output
