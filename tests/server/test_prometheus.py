"""Debian's Prometheus on a live server: every expression of the rules and the dashboard has a value.

Only where PROMETHEUS_PROGRAMS names the folder of its programs, as `make test-monitoring` does.
"""

import json
import math
import os
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.server.ports import settle_ports
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.monitoring.files import FOLDER, RULES, alerts, expressions
from tests.server.support import (
    CHUNK,
    DECODE,
    OFFLINE,
    RATE,
    STREAMING,
    TRANSCRIBE,
    Stream,
    Wire,
    all_clips,
    clip,
    clip_path,
    code_of,
    copied_repository,
    cut,
    eventually,
    noise,
    refusal,
)

PROGRAMS = os.environ.get("PROMETHEUS_PROGRAMS", "")
FAILING_CHUNK_SIZE = 5
STREAMS = 3
MODEL = f'''
import triton_python_backend_utils

from oasr_backend.triton.streaming_model import StreamingModel


class TritonPythonModel(StreamingModel):
    """Fails in the forward pass of streams of one chunk size."""

    def initialize(self, args):
        super().initialize(args)
        runner = self._engine._runner
        forward_chunks = runner.forward_chunks

        def failing_forward(requests, *rest):
            if requests[0].chunk_size == {FAILING_CHUNK_SIZE}:
                raise RuntimeError("made to fail")
            return forward_chunks(requests, *rest)

        runner.forward_chunks = failing_forward
'''

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="needs Prometheus: run `make test-monitoring`")


class Prometheus:
    """A running one; asked over its HTTP interface."""

    def __init__(self, address: str):
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def values(self, expression: str) -> list[float]:
        return [float(row["value"][1]) for row in self.get("query", query=expression)["result"]]

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=30):
                return True
        except OSError:
            return False

    @property
    def alarms(self) -> set[str]:
        """Names of alerts whose condition holds, whether for long enough or not."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"]}


@pytest.fixture(scope="module")
def busy_server(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Room for few streams, and a model that can be made to fail."""
    repository = copied_repository(tmp_path_factory.mktemp("busy") / "models", STREAMING, OFFLINE, DECODE, TRANSCRIBE)
    (repository / STREAMING / "1" / "model.py").write_text(MODEL)
    with running_server(
        demo_checkpoint_dir(),
        model_repository=repository,
        environment={"OASR_DTYPE": "float32", "OASR_MAX_SEQUENCES": str(STREAMS)},
        log_path=repository.parent / "server.log",
        ready_timeout_s=240,
        exit_timeout_s=5,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(busy_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Our configuration as it is, but for the address and the interval."""
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [busy_server.metrics_url]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = settle_ports([("prometheus", "127.0.0.1", 0)])
    address = f"127.0.0.1:{port}"
    command = [
        str(Path(PROGRAMS).resolve() / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with open(folder / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        found = Prometheus(address)
        try:
            assert eventually(lambda: found.is_ready or process.poll() is not None)
            assert process.poll() is None, (folder / "log").read_text()
            yield found
        finally:
            process.terminate()


def traffic(server: RunningServer) -> None:
    """Streams, clips and files, one stream too many, a failure, a file that is none, an option that is none."""
    with Wire(server) as wire:
        open_streams = [Stream(wire) for _ in range(STREAMS)]
        for stream in open_streams:
            stream.send(clip("digits.flac")[:CHUNK])
        assert code_of(refusal(lambda: Stream(wire).end())) == "SERVER_FULL"
        for stream in open_streams:
            stream.play(cut(all_clips()[: 6 * RATE], CHUNK))
        failing = Stream(wire, chunk_size=FAILING_CHUNK_SIZE)
        assert code_of(refusal(lambda: failing.send(noise(2, -20), end=True))) == "STREAM_FAILED"
        refusal(lambda: Stream(wire, no_such_option=1).end())
        wire.transcribe(clip("digits.flac"))
        wire.transcribe_file(clip_path("digits.flac").read_bytes())
        refusal(lambda: wire.transcribe_file(b"no audio"))


def test_every_expression_of_dashboard_and_rules_has_a_value(
    busy_server: RunningServer, prometheus: Prometheus
) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def drive() -> None:
        try:
            while not stop.is_set():
                traffic(busy_server)
        except BaseException as error:
            failures.append(error)

    driver = threading.Thread(target=drive)
    driver.start()
    missing: dict[str, str] = {}

    def all_there() -> bool:
        missing.clear()
        for one in expressions():
            values = prometheus.values(one.text)
            if not values:
                missing[f"{one.where}: {one.text}"] = "empty"
            elif all(map(math.isnan, values)):
                missing[f"{one.where}: {one.text}"] = "not a number"
        return not missing or bool(failures)

    try:
        # A second look, for rates need two samples with traffic between them.
        complete = eventually(all_there, within_s=120)
        alarms_came = eventually(lambda: {"OasrFailing", "OasrRefusing"} <= prometheus.alarms)
    finally:
        stop.set()
        driver.join(120)
    assert not failures
    assert complete, missing
    assert alarms_came, prometheus.alarms
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert [rule for rule in rules if rule["health"] != "ok" or rule.get("lastError")] == []
    assert {rule["name"] for rule in rules if rule["type"] == "alerting"} == set(alerts())
    assert not prometheus.alarms & {"OasrDown", "OasrNoSamples", "OasrEngineStalled", "OasrInternalErrors"}


def test_a_server_that_ends_raises_the_alarm(busy_server: RunningServer, prometheus: Prometheus) -> None:
    busy_server.stop()
    time.sleep(1)
    assert eventually(lambda: "OasrDown" in prometheus.alarms)
