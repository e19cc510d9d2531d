"""From the start of the server to ready, the memory of its engines, and its first requests.

    python -m benchmarks.startup --json FILE [--rounds 3] [--streams 32]

The bundled checkpoint unless another is named, both engines. Each round is a start of its own, without the launcher's
self-test, so that the first request is the first. Memory is read when the server is ready, when no page of the pool
has been touched, and after `--streams` streams of 6 s at once; the allowance is 2.2 x the weights and 400 MB without
any pool, which is less than the target allows.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import oasr_backend.checkpoints.wenet  # noqa: F401 (registers the format)
from benchmarks import command
from benchmarks.processes import server_usage
from benchmarks.reporting import Report, Row, publish
from benchmarks.serving import recording, serving
from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.serve import RunningServer
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import OfflineClient, StreamingClient
from oasr_client.load.streams import Target, closed_loop

_MODELS = ("oasr_streaming", "oasr_offline")
_STEADY = 20
_ALLOWED_MIB = 400 * 1e6 / (1 << 20)
# The first window: a chunk and the front end's context.
_FIRST_WINDOW_S = 0.69
_CLIP_S = 3.0


@dataclass(frozen=True)
class Start:
    """One start of the server; memory in MiB, latencies in milliseconds, by model."""

    ready_s: float
    resident: dict[str, float]
    loaded: dict[str, float]
    first: dict[str, float]
    steady: dict[str, float]


def start_once(arguments: argparse.Namespace, checkpoint: Path) -> Start:
    started = time.monotonic()
    with serving(_MODELS, checkpoint, arguments, {}, self_test=False) as server:
        ready_s = time.monotonic() - started
        resident = _resident(server)
        first, steady = {}, {}
        with StreamingClient(server.grpc_url) as streaming, OfflineClient(server.grpc_url) as offline:
            # The connection is no part of a request.
            streaming.is_ready()
            first["oasr_streaming"], steady["oasr_streaming"] = _latencies(lambda: _first_window(streaming))
            offline.transcribe_samples(recording(_CLIP_S)[:0])
            first["oasr_offline"], steady["oasr_offline"] = _latencies(
                lambda: offline.transcribe_samples(recording(_CLIP_S)).latency_s
            )
        run = closed_loop(Target(server.grpc_url), [recording(6.0)] * arguments.streams)
        if run.errors:
            raise RuntimeError(run.errors[0])
        return Start(ready_s, resident, _resident(server), first, steady)


def _first_window(client: StreamingClient) -> float:
    """Seconds of the first chunk of a stream, which is one step."""
    with client.stream() as stream:
        return stream.send(recording(_FIRST_WINDOW_S)).latency_s


def _latencies(request: Callable[[], float]) -> tuple[float, float]:
    """The first and the median of those that follow, in milliseconds."""
    first = request()
    return 1000 * first, 1000 * float(np.median([request() for _ in range(_STEADY)]))


def _resident(server: RunningServer) -> dict[str, float]:
    return {role: usage.resident_mib for role, usage in server_usage(server.pid).items()}


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def weights_mib(checkpoint: Path, itemsize: int) -> float:
    """The weights in the engine's dtype."""
    return sum(weight.numel() for weight in load_checkpoint(checkpoint).state.values()) * itemsize / (1 << 20)


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.set_defaults(checkpoint=demo_checkpoint_dir())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=32)
    arguments = command.parse(parser)
    dtype = command.dtype_of(arguments)
    starts = [start_once(arguments, arguments.checkpoint) for _ in range(arguments.rounds)]
    weights = weights_mib(arguments.checkpoint, dtype.itemsize)
    allowance = 2.2 * weights + _ALLOWED_MIB

    ratios = {"target6_seconds_to_ready": _median(one.ready_s for one in starts)}
    rows: list[Row] = []
    for model in _MODELS:
        name = model.removeprefix("oasr_")
        resident = _median(one.resident[model] for one in starts)
        ratios[f"target6_{name}_memory_over_allowance"] = resident / allowance
        over = [one.first[model] / one.steady[model] for one in starts]
        ratios[f"target6_{name}_first_over_steady"] = _median(over)
        rows.append(
            {
                "model": model,
                "resident MiB": resident,
                "after the load": _median(one.loaded[model] for one in starts),
                "allowance": allowance,
                "first ms": _median(one.first[model] for one in starts),
                "steady ms": _median(one.steady[model] for one in starts),
                "worst first / steady": max(over),
            }
        )
    publish(
        Report(
            benchmark="startup",
            dtype=command.dtype_name(dtype),
            threads=arguments.threads,
            settings={
                "checkpoint": arguments.checkpoint.name,
                "weights_mib": weights,
                "rounds": arguments.rounds,
                "streams": arguments.streams,
            },
            tables={
                "engines": rows,
                "starts": [
                    {
                        "start": index + 1,
                        "seconds to ready": one.ready_s,
                        "tritonserver MiB": one.resident["tritonserver"],
                    }
                    for index, one in enumerate(starts)
                ],
            },
            ratios=ratios,
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
