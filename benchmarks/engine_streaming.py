"""Steps of the engine: many streams at once, beside the bare matrix products, and with long histories.

    python -m benchmarks.engine_streaming --json FILE [--streams 1 8 32] [--rounds 20]
        [--histories 0 80 600] [--history-streams 8] [--paced-seconds 10] [--quantization int8_w8a8]

Three parts, each with its arms in turns in this process:
  * lockstep streams of 4 chunks of history, and the matrix products of the same step alone; with `--quantization` the
    steps of a quantized engine as well;
  * streams in real time with random phases;
  * lockstep streams whose caches hold so many seconds, with unlimited history and with 4 chunks of it. The histories
    are streamed before, as fast as it goes, or, if they are longer than 100 s, made up of noise but for
    the last 5 s.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks import command
from benchmarks.gemm_bound import GemmBound, model_config
from benchmarks.reporting import Report, Row, publish
from benchmarks.streams import CHUNK_FRAMES, LockstepStreams, PacedRun, paced, streaming_engine
from benchmarks.timing import Times, interleaved
from oasr_backend.engine import ASREngine

_LEFT_CHUNKS = 4
_UNLIMITED = -1
_ALL_HISTORY = "unlimited"
# With a bounded history nothing changes after so long.
_BOUNDED_S = 80.0
# Steps of one turn of a history: as many chunks, so that none grows far from what it stands for.
_STEPS_A_TURN = 4


def lockstep(
    engine: ASREngine, bounds: dict[int, GemmBound], rounds: int, quantized: ASREngine | None = None
) -> dict[str, Times]:
    """Times of the steps and of their matrix products, by `step N`, `quantized N` and `products N`."""
    arms = {}
    groups = []
    for count, bound in bounds.items():
        for name, one in (("step", engine), ("quantized", quantized)):
            if one is not None:
                group = LockstepStreams(one, count)
                # The history is full, so that all steps are alike.
                group.advance((_LEFT_CHUNKS + 1) * one.chunk_seconds)
                arms[f"{name} {count}"] = group.step
                groups.append(group)
        arms[f"products {count}"] = bound.step
    times = interleaved(arms, rounds)
    for group in groups:
        group.close()
    return times


# A longer history is made up but for its end, because every step of it takes more than a second.
_LONG_S = 100.0
_END_S = 5.0


class History:
    """Lockstep streams whose caches hold `seconds` of audio, or nothing."""

    def __init__(self, engine: ASREngine, streams: int, seconds: float):
        self._streams = LockstepStreams(engine, streams)
        self._seconds = seconds
        made_up = seconds - _END_S if seconds > _LONG_S else 0.0
        self._streams.leap(made_up)
        self._streams.advance(seconds - made_up)

    def turn(self) -> list[float]:
        """Seconds of a few steps; they lengthen the history, unless it is to be empty."""
        if self._seconds == 0:
            self._streams.restart()
        return [self._streams.step() for _ in range(_STEPS_A_TURN)]


def with_histories(
    engines: Mapping[str, ASREngine], histories: Sequence[float], streams: int, rounds: int
) -> dict[tuple[str, float], Times]:
    """Times of the steps of `streams` streams by the engine's name and the seconds that the caches hold."""
    groups = {
        # In the middle of the measurement it holds what it stands for.
        (name, seconds): History(engine, streams, max(0.0, seconds - grown_s(engine, rounds) / 2))
        for name, engine in engines.items()
        for seconds in histories
        if name == _ALL_HISTORY or seconds <= _BOUNDED_S
    }
    taken: dict[tuple[str, float], list[float]] = {key: [] for key in groups}
    for turn in range(rounds + 1):
        for key, group in groups.items():
            steps = group.turn()
            taken[key] += steps if turn else []
    return {key: Times.of_seconds(values) for key, values in taken.items()}


def grown_s(engine: ASREngine, rounds: int) -> float:
    """Audio by which the measurement lengthens a history."""
    return (rounds + 1) * _STEPS_A_TURN * engine.chunk_seconds


def growth(times: Mapping[tuple[str, float], Times]) -> dict[str, float]:
    """Median step of unlimited history over that of the empty cache, by the target that it answers."""
    base = times[_ALL_HISTORY, 0.0].median
    return {
        f"target3_step_growth_to_{seconds:g}_s": one.median / base
        for (name, seconds), one in times.items()
        if name == _ALL_HISTORY and seconds
    }


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=20, help="of the first part")
    parser.add_argument("--paced-seconds", type=float, default=10.0, help="0: no streams in real time")
    parser.add_argument("--histories", type=float, nargs="*", default=[0.0, 80.0, 600.0], help="none: no third part")
    parser.add_argument("--history-streams", type=int, default=8)
    parser.add_argument("--history-rounds", type=int, default=6, help="of 4 steps each")
    parser.add_argument("--quantization", metavar="SCHEME", help="steps of the model in this scheme as well")
    arguments = command.parse(parser)
    dtype = command.dtype_of(arguments)
    config = model_config(arguments.checkpoint)

    def engine(streams: int, left_chunks: int, history_s: float = 0.0) -> ASREngine:
        return streaming_engine(
            arguments.checkpoint, arguments.dtype, arguments.threads, streams, left_chunks, history_s
        )

    tables: dict[str, list[Row]] = {}
    ratios: dict[str, float] = {}
    bounded = engine(sum(arguments.streams), _LEFT_CHUNKS)
    bounds = {count: GemmBound(config, count, dtype) for count in arguments.streams}
    quantized = None
    if arguments.quantization is not None:
        quantized = streaming_engine(
            arguments.checkpoint,
            arguments.dtype,
            arguments.threads,
            sum(arguments.streams),
            _LEFT_CHUNKS,
            quantization=arguments.quantization,
        )
    times = lockstep(bounded, bounds, arguments.rounds, quantized)
    tables["lockstep, 4 chunks of history"] = [
        _lockstep_row(count, times[f"step {count}"], times[f"products {count}"], bounds[count].flops, bounded)
        for count in arguments.streams
    ]
    for count in arguments.streams:
        step, products = times[f"step {count}"].median, times[f"products {count}"].median
        ratios["target1_step_over_gemm_bound" if count == 32 else f"step_over_gemm_bound_{count}"] = step / products
        if count == 1:
            ratios["target2_one_stream_step_ms"] = step
        if quantized is not None:
            ratios[f"step_over_{arguments.quantization}_{count}"] = step / times[f"quantized {count}"].median
    if quantized is not None:
        tables[f"lockstep, {arguments.quantization}"] = [
            _quantized_row(count, times[f"step {count}"], times[f"quantized {count}"]) for count in arguments.streams
        ]
    del bounds, quantized

    if arguments.paced_seconds:
        tables["in real time, random phases, 4 chunks of history"] = [
            _paced_row(count, paced(bounded, count, arguments.paced_seconds), bounded) for count in arguments.streams
        ]
    if arguments.histories:
        histories = sorted({0.0, *arguments.histories})
        streams = arguments.history_streams
        longest = max(histories) + grown_s(bounded, arguments.history_rounds)
        engines = {
            _ALL_HISTORY: engine(streams * len(histories), _UNLIMITED, longest),
            "4 chunks": engine(streams * len(histories), _LEFT_CHUNKS),
        }
        by_history = with_histories(engines, histories, streams, arguments.history_rounds)
        tables[f"{streams} streams in lockstep by history"] = [
            {"visible": name, "history s": seconds, **one.columns()} for (name, seconds), one in by_history.items()
        ]
        ratios |= growth(by_history)
    publish(
        Report(
            benchmark="engine_streaming",
            dtype=command.dtype_name(dtype),
            threads=arguments.threads,
            settings={
                "layers": config.encoder.layers,
                "dim": config.encoder.dim,
                "chunk": CHUNK_FRAMES,
                "rounds": arguments.rounds,
                "paced_seconds": arguments.paced_seconds,
                "history_streams": arguments.history_streams,
                "history_rounds": arguments.history_rounds,
            },
            tables=tables,
            ratios=ratios,
        ),
        arguments.json,
    )


def _lockstep_row(count: int, step: Times, products: Times, flops: int, engine: ASREngine) -> Row:
    return {
        "streams": count,
        **step.columns(),
        "x real time": count * engine.chunk_seconds * 1000 / step.median,
        "GEMM ms": products.median,
        "GEMM p99": products.p99,
        "GEMM GFLOP/s": flops / products.median / 1e6,
        "step / GEMM": step.median / products.median,
    }


def _quantized_row(count: int, step: Times, quantized: Times) -> Row:
    return {"streams": count, **quantized.columns(), "times as fast": step.median / quantized.median}


def _paced_row(count: int, run: PacedRun, engine: ASREngine) -> Row:
    return {
        "streams": count,
        "latency median ms": run.latency.median,
        "latency p99 ms": run.latency.p99,
        "mean width": float(np.mean(run.widths)),
        "busy": run.busy_share,
        "x real time when busy": run.audio_s / (run.busy_share * run.elapsed_s),
        "keeps up": "yes" if run.latency.p99 < 1000 * engine.chunk_seconds else "no",
    }


if __name__ == "__main__":
    main()
