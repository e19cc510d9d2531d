"""Streaming steps replayed as CUDA graphs beside the same steps run eagerly; only with a CUDA device.

    python -m benchmarks.graphs --json FILE [--widths 1 8 32 64] [--rounds 50] [--tail-streams 16] [--tail-seconds 80]

Two parts:
  * lockstep streams of 4 chunks of history, graph and eager in turns in this process;
  * streams that join one after another and keep all history: the longest steps where every shape was captured before
    the first step, and where each is captured when it first comes.
"""

import sys
from contextlib import nullcontext
from unittest.mock import patch

import torch

from benchmarks import command
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.reporting import Report, Row, publish
from benchmarks.streams import CHUNK_FRAMES, LockstepStreams
from benchmarks.timing import Times, interleaved
from oasr_backend.config.machine import dtype_on
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.engine.runtimes.paged import PagedRuntime

_LEFT_CHUNKS = 4
_UNLIMITED = -1
REFUSAL = "benchmarks.graphs compares CUDA graphs with eager steps and needs a CUDA device; torch finds none here"


def growing(engine: ASREngine, streams: int, seconds: float) -> Times:
    """Steps of streams that join one after another, a step apart, until the first has spoken for so long."""
    group = LockstepStreams(engine, 0)
    taken: list[float] = []
    for step in range(round(seconds / engine.chunk_seconds)):
        if step < streams:
            group.join()
        taken.append(group.step())
    group.close()
    return Times.of_seconds(taken)


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--tail-streams", type=int, default=16)
    parser.add_argument("--tail-seconds", type=float, default=80.0)
    if not torch.cuda.is_available():
        # Before anything is made, but behind --help.
        parser.parse_args()
        sys.exit(REFUSAL)
    arguments = command.parse(parser)

    def engine(streams: int, left_chunks: int, graphs: bool = True) -> ASREngine:
        return ASREngine(
            EngineConfig(
                ckpt_dir=str(make_checkpoint(arguments.checkpoint)),
                device="cuda",
                dtype=arguments.dtype,
                num_threads=arguments.threads,
                max_batch_size=streams,
                service_mode="streaming",
                chunk_size=CHUNK_FRAMES,
                num_left_chunks=left_chunks,
                use_cuda_graphs=graphs,
                # The same widths in both arms.
                streaming_graph_pad_batch=True,
            )
        )

    arms = {}
    for name, graphs in (("graph", True), ("eager", False)):
        made = engine(sum(arguments.widths), _LEFT_CHUNKS, graphs)
        for width in arguments.widths:
            group = LockstepStreams(made, width)
            group.advance((_LEFT_CHUNKS + 1) * made.chunk_seconds)
            arms[f"{name} {width}"] = group.step
    times = interleaved(arms, arguments.rounds)
    steps: list[Row] = [
        {"streams": width, "path": name, **one.columns(), "max ms": one.maximum}
        for width in arguments.widths
        for name in ("graph", "eager")
        for one in (times[f"{name} {width}"],)
    ]
    ratios = {
        f"eager_over_graph_{width}_streams": times[f"eager {width}"].median / times[f"graph {width}"].median
        for width in arguments.widths
    }

    tails: list[Row] = []
    worst: dict[str, Times] = {}
    for name in ("captured before", "captured when it comes"):
        lazily = patch.object(PagedRuntime, "prewarm", lambda self: None)
        with nullcontext() if name == "captured before" else lazily:
            made = engine(arguments.tail_streams, _UNLIMITED)
        # What every process pays once is no part of the tail.
        warm = LockstepStreams(made, 1)
        warm.advance(2 * made.chunk_seconds)
        warm.close()
        worst[name] = growing(made, arguments.tail_streams, arguments.tail_seconds)
        tails.append({"graphs": name, **worst[name].columns(), "max ms": worst[name].maximum})
        made.shutdown()
    late, early = worst["captured when it comes"], worst["captured before"]
    ratios["p99_without_over_with_prewarm"] = late.p99 / early.p99
    ratios["max_without_over_with_prewarm"] = late.maximum / early.maximum
    publish(
        Report(
            benchmark="graphs",
            dtype=command.dtype_name(dtype_on(torch.device("cuda"), arguments.dtype)),
            threads=arguments.threads,
            settings={
                "device": torch.cuda.get_device_name(),
                "widths": arguments.widths,
                "rounds": arguments.rounds,
                "tail_streams": arguments.tail_streams,
                "tail_seconds": arguments.tail_seconds,
            },
            tables={
                "lockstep, 4 chunks of history": steps,
                f"{arguments.tail_streams} streams that join one by one, all history": tails,
            },
            ratios=ratios,
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
