"""Clips of 2 to 15 s against the real server, so many at a time: int16 over gRPC.

    python -m benchmarks.server_offline --json FILE [--concurrency 1 8 32] [--clips 48] [--rounds 2]
        [--set NAME=VALUE,...]

Clients are threads of this process, on the cores of the server. With each round the engine alone takes the same clips,
in a process of its own. Texts are compared with those of one clip at a time.

The model is the random 12 x 256 one; `--checkpoint assets/demo-en` takes the bundled one.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from benchmarks import command
from benchmarks.clips import mixed_clips, total_seconds
from benchmarks.engine_offline import OfflineEngine, OfflineTurn
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.processes import CpuMeter
from benchmarks.reporting import Report, Row, publish
from benchmarks.serving import serving, settings_of
from benchmarks.timing import Times
from benchmarks.workers import Worker
from oasr_backend.serve import RunningServer
from oasr_client import OfflineClient, audio

_MODEL = "oasr_offline"


@dataclass(frozen=True)
class Pass:
    """All clips once."""

    seconds: float
    latency: Times
    texts: tuple[str, ...]
    cores: dict[str, float]


def one_pass(server: RunningServer, clips: Sequence[np.ndarray], concurrency: int) -> Pass:
    """Raises OasrError when a clip fails."""
    meter = CpuMeter(server.pid)
    with OfflineClient(server.grpc_url) as client, ThreadPoolExecutor(concurrency) as pool:
        started = time.monotonic()
        answers = list(pool.map(client.transcribe_samples, clips))
        seconds = time.monotonic() - started
    return Pass(
        seconds,
        Times.of_seconds([one.latency_s for one in answers]),
        tuple(one.text for one in answers),
        meter.cores(),
    )


def _row(concurrency: int, passes: Sequence[Pass], audio_s: float, alone: Sequence[str]) -> Row:
    latency = Times(tuple(one for each in passes for one in each.latency.milliseconds))
    cores = {
        f"{name} cores": float(np.median([each.cores.get(key, 0.0) for each in passes]))
        for name, key in (("client", "client"), ("server", "tritonserver"), ("stub", _MODEL))
    }
    differing = max(sum(a != b for a, b in zip(each.texts, alone, strict=True)) for each in passes)
    rate = audio_s / float(np.median([each.seconds for each in passes]))
    return {"at a time": concurrency, "x real time": rate, **latency.columns(), **cores, "texts differing": differing}


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--set", default="", dest="settings", metavar="NAME=VALUE,...", help="of the server")
    arguments = command.parse(parser)
    checkpoint = make_checkpoint(arguments.checkpoint)
    clips = [audio.to_pcm(clip) for clip in mixed_clips(arguments.clips)]
    audio_s = total_seconds(clips)
    passes: dict[int, list[Pass]] = defaultdict(list)
    turns: list[OfflineTurn] = []
    shared = (checkpoint, arguments.dtype, arguments.threads, arguments.clips, False)
    with (
        Worker(OfflineEngine, *shared) as engine,
        serving((_MODEL,), checkpoint, arguments, settings_of(arguments.settings)) as server,
    ):
        alone = one_pass(server, clips, 1).texts
        engine.call("turn")
        for _ in range(arguments.rounds):
            for concurrency in arguments.concurrency:
                passes[concurrency].append(one_pass(server, clips, concurrency))
            turns.append(engine.call("turn"))
    of_engine = audio_s / float(np.median([turn.seconds for turn in turns]))
    rows = [_row(concurrency, passes[concurrency], audio_s, alone) for concurrency in arguments.concurrency]
    publish(
        Report(
            benchmark="server_offline",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={
                "checkpoint": checkpoint.name,
                "clips": arguments.clips,
                "audio_s": audio_s,
                "rounds": arguments.rounds,
                "server": settings_of(arguments.settings),
                "engine_times_real_time": of_engine,
                "protocol": "gRPC, int16, clients on the server's cores",
            },
            tables={f"{arguments.clips} clips, {audio_s:.0f} s; the engine alone: {of_engine:.3g} x real time": rows},
            ratios={
                f"server_over_engine_{row['at a time']}_at_a_time": float(row["x real time"] or 0) / of_engine
                for row in rows
            },
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
