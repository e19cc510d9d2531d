"""Many streams against the real server: int16 over gRPC, the clients on the cores of the server.

    python -m benchmarks.server_streaming --json FILE [--streams 1 8 32 128] [--rounds 2] [--arm NAME=VALUE,... ]...
    python -m benchmarks.server_streaming --json FILE --paced [--seconds 60] [--start 8] [--max-streams 256]

Closed loop: every stream sends its next chunk when the last one is answered, and all texts must be the same. Every
arm is a server of its own with those settings (OASR_NAME, or a variable of the process such as GOMP_SPINCOUNT); arms
take turns, and with each turn of the first one the engine alone steps as many streams, in a process of its own. CPU
times of clients, server and model process are given as cores kept busy.

Paced: streams in real time with random phases. The capacity is the largest number with a p99 latency, from the moment
a chunk is due to its answer, below the length of a chunk, with no error, and with the texts of an unloaded run. Then
half of it once more.

The model is the random 12 x 256 one; `--checkpoint assets/demo-en` takes the bundled one.
"""

import argparse
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import command
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.processes import CpuMeter
from benchmarks.reporting import Report, Row, publish
from benchmarks.serving import recording, serving, settings_of
from benchmarks.streams import LockstepHost
from benchmarks.timing import Times, Turn
from benchmarks.workers import Worker
from oasr_backend.serve import RunningServer
from oasr_client.load.capacity import capacity
from oasr_client.load.processes import Processes
from oasr_client.load.run import LoadRun
from oasr_client.load.step import Step, texts_alone, try_streams
from oasr_client.load.streams import Target, closed_loop

_MODEL = "oasr_streaming"
_VARIANTS = 3


@dataclass(frozen=True)
class Sample:
    """One round of one arm at one number of streams."""

    arm: str
    run: LoadRun
    width: float
    cores: dict[str, float]

    @property
    def differing(self) -> int:
        """Texts beside the most frequent one, of streams of the same audio."""
        return len(self.run.texts) - max(map(self.run.texts.count, self.run.texts))


def widths(server: RunningServer) -> tuple[float, float]:
    """Sum and count of the widths of all steps so far."""
    # The exporter is a quarter of a second late.
    time.sleep(1.0)
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as response:
        text = response.read().decode()
    values = dict(re.findall(r'oasr_engine_batch_size_(sum|count)\{mode="streaming"[^}]*\} (\S+)', text))
    return float(values["sum"]), float(values["count"])


def sample(server: RunningServer, arm: str, streams: int, wave: np.ndarray) -> Sample:
    """Raises RuntimeError when a stream fails."""
    before = widths(server)
    meter = CpuMeter(server.pid)
    run = closed_loop(Target(server.grpc_url), [wave] * streams)
    cores = meter.cores()
    if run.errors:
        raise RuntimeError(f"{arm or 'defaults'}, {streams} streams: {run.errors[0]}")
    after = widths(server)
    return Sample(arm, run, (after[0] - before[0]) / (after[1] - before[1]), cores)


def closed_loops(arguments: argparse.Namespace, checkpoint: Path) -> tuple[list[Row], dict[str, float]]:
    """Rows by number of streams and arm, and what the server makes of the engine's throughput."""
    wave = recording(arguments.seconds)
    arms = arguments.arms or [""]
    samples: dict[tuple[int, str], list[Sample]] = defaultdict(list)
    engine_turns: dict[int, list[Turn]] = defaultdict(list)
    shared = (checkpoint, arguments.dtype, arguments.threads, arguments.streams, arguments.left_chunks)
    with Worker(LockstepHost, *shared) as engine:
        for _ in range(arguments.rounds):
            for arm in arms:
                with serving((_MODEL,), checkpoint, arguments, _settings(arguments, arm)) as server:
                    closed_loop(Target(server.grpc_url), [wave[: len(wave) // 4]] * 4)
                    for streams in arguments.streams:
                        samples[streams, arm].append(sample(server, arm, streams, wave))
                        if arm == arms[0]:
                            engine_turns[streams].append(engine.call("turn", streams, arguments.engine_seconds))
    rows = []
    ratios = {}
    for (streams, arm), members in sorted(samples.items()):
        of_engine = _median([turn.times_real_time for turn in engine_turns[streams]])
        rows.append(_row(streams, arm, members, of_engine))
        if arm == arms[0]:
            of_server = _median([one.run.times_real_time for one in members])
            name = f"server_over_engine_{streams}_streams"
            ratios[f"target5_{name}" if streams in (32, 128) else name] = of_server / of_engine
    return rows, ratios


def _row(streams: int, arm: str, members: Sequence[Sample], of_engine: float) -> Row:
    latency = Times(tuple(one for member in members for one in member.run.latency.milliseconds))
    of_server = _median([one.run.times_real_time for one in members])
    return {
        "streams": streams,
        "arm": arm or "defaults",
        "x real time": of_server,
        "engine": of_engine,
        **latency.columns(),
        "width": _median([one.width for one in members]),
        **{
            role: _median([one.cores.get(key, 0.0) for one in members])
            for role, key in (("client cores", "client"), ("server", "tritonserver"), ("stub", _MODEL))
        },
        "differing": max(one.differing for one in members),
    }


def step_row(step: Step) -> Row:
    return {
        "streams": step.streams,
        **step.run.latency.columns(),
        "p99 / median": step.spread,
        "p99 but for last chunks": step.run.partial_latency.p99,
        "last chunks, median": step.run.final_latency.median,
        "client late p99 ms": step.run.client_lag.p99,
        "verdict": step.verdict.sentence or "passes",
    }


def paced_capacity(arguments: argparse.Namespace, checkpoint: Path) -> tuple[list[Row], dict[str, float]]:
    """A row for every number tried, the last for half the capacity."""
    waves = [recording(arguments.seconds, variant) for variant in range(_VARIANTS)]
    steps: list[Step] = []
    # Another one would take a core from the server.
    alike = Processes(1)
    with serving((_MODEL,), checkpoint, arguments, _settings(arguments, "")) as server:
        target = Target(server.grpc_url)
        alone = texts_alone(target, waves)

        def passes(streams: int) -> bool:
            steps.append(try_streams(target, streams, waves, alone, alike))
            # These take minutes.
            Console().print(steps[-1].line)
            return steps[-1].verdict.passes

        found = capacity(passes, arguments.start, arguments.max_streams, arguments.resolution)
        half = try_streams(target, max(1, found // 2), waves, alone, alike)
    before = half.run.partial_latency
    ratios = {
        "capacity_streams": float(found),
        "target5_paced_p99_over_median_at_half_capacity": half.spread,
        "paced_p99_over_median_but_for_last_chunks": before.p99 / before.median if before.median else 0.0,
    }
    return [step_row(one) for one in (*steps, half)], ratios


def _settings(arguments: argparse.Namespace, arm: str) -> dict[str, str]:
    most = max(128, arguments.max_streams if arguments.paced else max(arguments.streams))
    given = {"OASR_NUM_LEFT_CHUNKS": str(arguments.left_chunks), "OASR_MAX_SEQUENCES": str(most)}
    return given | settings_of(arm)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="of audio of every stream; 60 for a capacity")
    parser.add_argument("--left-chunks", type=int, default=4)
    closed = parser.add_argument_group("closed loop")
    closed.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 128])
    closed.add_argument("--arm", action="append", default=[], dest="arms", metavar="NAME=VALUE,...")
    closed.add_argument("--rounds", type=int, default=2)
    closed.add_argument("--engine-seconds", type=float, default=5.0, help="of a turn of the engine alone")
    in_real_time = parser.add_argument_group("paced")
    in_real_time.add_argument("--paced", action="store_true")
    in_real_time.add_argument("--start", type=int, default=8, help="streams of the first try")
    in_real_time.add_argument("--max-streams", type=int, default=256)
    in_real_time.add_argument("--resolution", type=float, default=0.1, help="of the capacity, as a share of it")
    arguments = command.parse(parser)
    if arguments.left_chunks < 0:
        parser.error("--left-chunks must be 0 or more: with all history steps of a run are not alike")
    checkpoint = make_checkpoint(arguments.checkpoint)
    rows, ratios = (paced_capacity if arguments.paced else closed_loops)(arguments, checkpoint)
    publish(
        Report(
            benchmark="server_streaming",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={
                "checkpoint": checkpoint.name,
                "seconds": arguments.seconds,
                "left_chunks": arguments.left_chunks,
                "chunk_ms": Target().chunk_ms,
                "rounds": arguments.rounds,
                "protocol": "gRPC, int16, clients on the server's cores",
            },
            tables={"in real time, random phases" if arguments.paced else "closed loop": rows},
            ratios=ratios,
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
