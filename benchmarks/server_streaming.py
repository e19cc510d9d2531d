"""Closed loop of N streams against the real server: throughput, chunk latency, and how wide the steps are.

    python -m benchmarks.server_streaming --json FILE [--streams 1 8 32] [--arm NAME=VALUE,... ]...

Every arm is a server of its own with those settings (OASR_NAME, or a variable of the process such as GOMP_SPINCOUNT);
arms take turns, `--rounds` times. Clients are threads of this process, on the same cores as the server.
"""

import argparse
import json
import os
import re
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import assets_dir
from oasr_client import StreamingClient, audio

_CHUNK_MS = 640
_SECONDS = 12


@dataclass(frozen=True)
class Sample:
    """One round of one arm at one number of streams; latencies in milliseconds."""

    arm: str
    streams: int
    times_real_time: float
    p50_ms: float
    p99_ms: float
    mean_width: float


def recording() -> np.ndarray:
    """The bundled clips, repeated: [samples] int16."""
    clips = [audio.to_pcm(audio.read(path)) for path in sorted((assets_dir() / "clips").glob("*.flac"))]
    once = np.concatenate(clips)
    return np.tile(once, -(-_SECONDS * audio.SAMPLE_RATE // len(once)))[: _SECONDS * audio.SAMPLE_RATE]


def widths(server: RunningServer) -> tuple[float, float]:
    """Sum and count of the widths of all steps so far."""
    # The exporter is a quarter of a second late.
    time.sleep(1.0)
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as response:
        text = response.read().decode()
    values = dict(re.findall(r'oasr_engine_batch_size_(sum|count)\{mode="streaming"[^}]*\} (\S+)', text))
    return float(values["sum"]), float(values["count"])


def closed_loop(server: RunningServer, arm: str, streams: int, wave: np.ndarray) -> Sample:
    """Every client sends its next chunk when the last one is answered; all texts must be the same."""
    latencies: list[float] = []
    texts: list[str] = []
    failures: list[BaseException] = []

    def client() -> None:
        try:
            with StreamingClient(server.grpc_url) as connection, connection.stream() as stream:
                for chunk in audio.chunks(wave, _CHUNK_MS):
                    latencies.append(stream.send(chunk).latency_s)
                texts.append(stream.finish().text)
        except BaseException as error:
            failures.append(error)

    before = widths(server)
    threads = [threading.Thread(target=client) for _ in range(streams)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - started
    if failures:
        raise failures[0]
    if len(set(texts)) != 1:
        raise RuntimeError(f"{arm}: {streams} streams of the same audio gave {len(set(texts))} texts")
    after = widths(server)
    milliseconds = 1000 * np.array(latencies)
    return Sample(
        arm=arm,
        streams=streams,
        times_real_time=streams * len(wave) / audio.SAMPLE_RATE / elapsed,
        p50_ms=float(np.percentile(milliseconds, 50)),
        p99_ms=float(np.percentile(milliseconds, 99)),
        mean_width=(after[0] - before[0]) / (after[1] - before[1]),
    )


def settings_of(arm: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in arm.split(",") if part]
    return {name if "_" in name and name.isupper() else f"OASR_{name.upper()}": value for name, _, value in pairs}


def measure(arm: str, numbers: list[int], wave: np.ndarray) -> list[Sample]:
    settings = settings_of(arm)
    ours = {name: value for name, value in settings.items() if name.startswith("OASR_")}
    foreign = {name: value for name, value in settings.items() if name not in ours}
    saved = {name: os.environ.get(name) for name in foreign}
    os.environ.update(foreign)
    try:
        with running_server(environment=ours, models=("oasr_streaming",)) as server:
            closed_loop(server, arm, 4, wave)
            return [closed_loop(server, arm, number, wave) for number in numbers]
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--arm", action="append", default=[], dest="arms", metavar="NAME=VALUE,...")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    wave = recording()
    samples = [
        sample
        for _ in range(arguments.rounds)
        for arm in arguments.arms or [""]
        for sample in measure(arm, arguments.streams, wave)
    ]
    groups: dict[tuple[int, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.streams, sample.arm].append(sample)
    table = Table("streams", "arm", "x real time", "p50 ms", "p99 ms", "mean width", title="medians over the rounds")
    for (streams, arm), members in sorted(groups.items()):
        columns = zip(*((one.times_real_time, one.p50_ms, one.p99_ms, one.mean_width) for one in members), strict=True)
        table.add_row(str(streams), arm or "defaults", *(f"{np.median(column):.1f}" for column in columns))
    Console(width=140).print(table)
    arguments.json.write_text(json.dumps([asdict(one) for one in samples], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
