"""The load tools against the real server: `oasr bench`, locust, and the data for perf_analyzer."""

import csv
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from benchmarks.perf_analyzer.inputs import utterances, write_inputs
from oasr_backend.serve import RunningServer
from oasr_backend.server.process import group_members
from tests.server.support import (
    CLIPS,
    OFFLINE,
    PROTOCOLS,
    TIMEOUT_S,
    Stream,
    Wire,
    as_pcm,
    clip,
    eventually,
    gauge,
    oasr,
    references,
    settled_counter,
    streams_are_back,
    text_of,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bench_tells_how_many_streams_pass_and_draws_it(protocol: str, server: RunningServer, tmp_path: Path) -> None:
    url = server.grpc_url if protocol == "grpc" else server.http_url
    figures, picture = tmp_path / "bench.json", tmp_path / "bench.png"
    load = ("--seconds", "2", "--chunk-ms", "1000", "--start", "4", "--max", "4")
    outputs = ("--json", str(figures), "--plot", str(picture))
    done = oasr("bench", "--server", url, "--protocol", protocol, *load, *outputs, timeout_s=2 * TIMEOUT_S)
    document = json.loads(figures.read_text())
    steps = document["steps"]
    # Whether they are in time is the machine's business; that every one is answered with its text is ours.
    assert all(step["errors"] == step["texts_differing"] == 0 for step in steps), steps
    assert steps[0]["streams"] == 4
    assert steps[0]["chunks"] == 8 or steps[0]["verdict"] == "late"
    assert done.returncode == (0 if document["streams"] else 1), done.stderr
    assert document["streams"] == max((step["streams"] for step in steps if step["passes"]), default=0)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert eventually(lambda: streams_are_back(server))


def test_bench_shares_its_streams_out_over_processes(server: RunningServer, tmp_path: Path) -> None:
    figures = tmp_path / "bench.json"
    load = ("--seconds", "2", "--chunk-ms", "1000", "--start", "7", "--max", "7", "--resolution", "10")
    command = ("bench", "--server", server.grpc_url, *load, "--processes", "3", "--json", str(figures))
    done = oasr(*command, timeout_s=2 * TIMEOUT_S)
    assert done.stderr == ""
    first = json.loads(figures.read_text())["steps"][0]
    assert (first["streams"], first["processes"]) == (7, 3)
    assert first["errors"] == first["texts_differing"] == 0, first
    assert first["chunks"] == 14 or first["verdict"] == "late"
    assert eventually(lambda: streams_are_back(server))


def test_an_interrupted_bench_ends_its_streams_and_its_processes(server: RunningServer) -> None:
    load = ("--seconds", "60", "--start", "6", "--max", "6", "--processes", "2")
    command = [sys.executable, "-m", "oasr_client.main", "bench", "--server", server.grpc_url, *load]
    assert eventually(lambda: streams_are_back(server))
    reaped = settled_counter(server, "sequences_reaped")
    bench = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert eventually(lambda: gauge(server, "sequences_open") == 6)
        assert len(group_members(bench.pid)) >= 3
        # As a terminal does it.
        os.killpg(bench.pid, signal.SIGINT)
        _, told = bench.communicate(timeout=TIMEOUT_S)
        assert (bench.returncode, told) == (130, "oasr: interrupted\n")
        assert eventually(lambda: not group_members(bench.pid))
        assert eventually(lambda: streams_are_back(server), 30)
        assert settled_counter(server, "sequences_reaped") == reaped
    finally:
        with suppress(ProcessLookupError):
            os.killpg(bench.pid, signal.SIGKILL)


def test_bench_says_when_the_server_is_full(small_server: RunningServer, tmp_path: Path) -> None:
    figures = tmp_path / "bench.json"
    load = ("--seconds", "1", "--start", "6", "--max", "6")
    oasr("bench", "--server", small_server.grpc_url, *load, "--json", str(figures), timeout_s=2 * TIMEOUT_S)
    first = json.loads(figures.read_text())["steps"][0]
    assert (first["streams"], first["verdict"]) == (6, "refused")
    assert "streams" in first["reason"]
    assert eventually(lambda: streams_are_back(small_server))


def test_locust_users_finish_with_the_texts_of_a_run_alone(server: RunningServer, tmp_path: Path) -> None:
    if find_spec("locust") is None:
        pytest.skip('locust is not installed: pip install "oasr-triton[load]"')
    # Abandoned streams stay for a minute, in the way of other tests.
    mix = {"OASR_LOAD_ABANDONED": "0", "OASR_LOAD_CANCELLED": "0.3", "OASR_LOAD_SECONDS": "1,2"}
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "benchmarks" / "locustfile.py"), "--headless"]
    load = ["--users", "8", "--spawn-rate", "8", "--run-time", "10s", "--host", server.grpc_url]
    done = subprocess.run(
        [*command, *load, "--csv", str(tmp_path / "load")],
        env=os.environ | mix,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * TIMEOUT_S,
    )
    with (tmp_path / "load_stats.csv").open(encoding="utf-8") as file:
        rows = {row["Name"]: row for row in csv.DictReader(file)}
    assert {"chunk", "final"} <= rows.keys(), done.stdout + done.stderr
    assert int(rows["final"]["Request Count"]) > 0
    assert rows["Aggregated"]["Failure Count"] == "0", done.stdout + done.stderr
    # The machine may be too busy for the pace, which is told and no failure of a request.
    assert done.returncode == 0 or "late: p99" in done.stdout or "clients were late" in done.stdout, done.stdout
    assert eventually(lambda: streams_are_back(server))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("name", "pad"), [("PCM", False), ("WAV", True)])
def test_the_server_takes_the_data_for_perf_analyzer(
    protocol: str, name: str, pad: bool, server: RunningServer, tmp_path: Path
) -> None:
    parts = utterances([as_pcm(clip(one)) for one in CLIPS], len(CLIPS))
    paths = write_inputs(tmp_path, parts, 640, name, pad)
    streaming, offline, _ = (json.loads(path.read_text())["data"] for path in paths)
    dtypes = {"PCM": np.int16, "WAV": np.float32, "WAV_LENS": np.int32}

    def tensors(row: dict[str, dict[str, list[float]]]) -> dict[str, np.ndarray]:
        # perf_analyzer adds the batch dimension.
        return {key: np.array([one["content"]], dtypes[key]).reshape(1, *one["shape"]) for key, one in row.items()}

    with Wire(server, protocol) as wire:
        for chunks, whole, spoken in zip(streaming, offline, CLIPS, strict=True):
            stream = Stream(wire)
            for number, row in enumerate(chunks):
                answer = stream.infer(tensors(row), end=number == len(chunks) - 1)
            assert text_of(answer) == references()[spoken]
            assert text_of(wire.infer(OFFLINE, tensors(whole))) == references()[spoken]
