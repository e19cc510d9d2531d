"""The same weights under onnxruntime, which is what users run today, beside the engine.

    python -m benchmarks.onnx_peer --json FILE [--seconds 2] [--rounds 3] [--directory DIR]

Arms: chunk-wise export (chunk 16, 4 chunks of history), batch 1 and 8, float32 and int8 (dynamic quantisation of the
matrix products), in one process with one thread, one with all threads, and as many processes as threads with one
each. The peer runs encoder, CTC head and log-softmax on features that are ready; the engine takes samples and gives
texts. Arms take turns; each has processes of its own that sleep in between. That both compute the same is checked
first, to 1e-3 in every log-probability.

Reference rates are those of two cores with AMX and AVX-512; on a processor without, the peer cannot reach them.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnxruntime

from benchmarks import command
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.peer_arm import PRECISIONS, PeerArm, peer_arms
from benchmarks.peer_check import TOLERANCE, Agreement, chunk_log_probs, compare, engine_log_probs
from benchmarks.peer_export import ChunkShape, export_chunks
from benchmarks.peer_session import ChunkSession
from benchmarks.reporting import Report, Row, instructions, publish
from benchmarks.streams import CHUNK_FRAMES, LockstepHost
from benchmarks.timing import Times, Turn
from benchmarks.workers import Worker, all_at_once

_LEFT_CHUNKS = 4
_BATCHES = (1, 8)
_ENGINE_STREAMS = (1, 32)
_REACHED = 0.85
# Times real time by (precision, batch, whether one core): what a peer must come near to count as one.
_REFERENCE = {("float32", 8, False): 85.0, ("float32", 8, True): 47.0, ("int8", 1, False): 67.0}


def _reference(arm: PeerArm) -> float | None:
    return _REFERENCE.get((arm.precision, arm.batch, arm.processes * arm.threads == 1))


class PeerHost:
    """Sessions of the peer in a process of their own, opened when first asked for."""

    def __init__(self, paths: Mapping[tuple[str, int], Path]):
        self._paths = paths
        self._sessions: dict[tuple[str, int, int], ChunkSession] = {}

    def turn(self, precision: str, batch: int, threads: int, seconds: float) -> Turn:
        return self._session(precision, batch, threads).turn(seconds)

    def open(self, precision: str, batch: int, threads: int) -> None:
        """Opens a session and runs it for the first time."""
        self._session(precision, batch, threads).turn(0.1)

    def _session(self, precision: str, batch: int, threads: int) -> ChunkSession:
        key = precision, batch, threads
        if key not in self._sessions:
            self._sessions[key] = ChunkSession(self._paths[precision, batch], threads)
        return self._sessions[key]


def measure(
    arms: Sequence[PeerArm], hosts: Sequence[Worker], engine: Worker, rounds: int, seconds: float
) -> tuple[dict[PeerArm, list[list[Turn]]], dict[int, list[Turn]]]:
    """Turns of every arm, one a process and round, and those of the engine by its streams."""
    turns: dict[PeerArm, list[list[Turn]]] = {arm: [] for arm in arms}
    of_engine: dict[int, list[Turn]] = {streams: [] for streams in _ENGINE_STREAMS}
    for arm in arms:
        all_at_once(hosts[: arm.processes], "open", arm.precision, arm.batch, arm.threads)
    for _ in range(rounds):
        for streams, taken in of_engine.items():
            taken.append(engine.call("turn", streams, seconds))
        for arm in arms:
            part = hosts[: arm.processes]
            turns[arm].append(all_at_once(part, "turn", arm.precision, arm.batch, arm.threads, seconds))
    return turns, of_engine


def check(checkpoint: Path, paths: Mapping[tuple[str, int], Path]) -> dict[tuple[str, int], Agreement]:
    """Raises RuntimeError where a float32 peer does not compute what the engine computes."""
    expected = engine_log_probs(checkpoint, _LEFT_CHUNKS, streaming=True)
    agreements = {
        key: compare(chunk_log_probs(ChunkSession(path, 1), checkpoint), expected) for key, path in paths.items()
    }
    for (precision, batch), agreement in agreements.items():
        if precision == "float32" and agreement.difference > TOLERANCE:
            raise RuntimeError(f"batch {batch} differs from the engine by {agreement.difference} in a log-probability")
    return agreements


def rate(rounds: Sequence[Sequence[Turn]]) -> float:
    """Times real time of all processes together, the median over the rounds."""
    return Times(tuple(sum(turn.times_real_time for turn in turns) for turns in rounds)).median


def steps(rounds: Sequence[Sequence[Turn]]) -> Times:
    return Times.of_seconds([step for turns in rounds for turn in turns for step in turn.steps])


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one turn of an arm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the ONNX files are kept; default: nowhere")
    arguments = command.parse(parser)
    checkpoint = make_checkpoint(arguments.checkpoint)
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        paths = {
            (precision, batch): export_chunks(
                checkpoint, directory, ChunkShape(batch, CHUNK_FRAMES, _LEFT_CHUNKS), precision
            )
            for precision in PRECISIONS
            for batch in _BATCHES
        }
        agreements = check(checkpoint, paths)
        arms = peer_arms(_BATCHES, [(1, 1), (1, arguments.threads), (arguments.threads, 1)])
        hosts = [Worker(PeerHost, paths) for _ in range(arguments.threads)]
        engine = Worker(LockstepHost, checkpoint, arguments.dtype, arguments.threads, _ENGINE_STREAMS, _LEFT_CHUNKS)
        turns, of_engine = measure(arms, hosts, engine, arguments.rounds, arguments.seconds)
        for worker in (*hosts, engine):
            worker.close()

    engine_rates = {streams: rate([[turn] for turn in taken]) for streams, taken in of_engine.items()}
    engine_steps = {streams: steps([[turn] for turn in taken]) for streams, taken in of_engine.items()}
    rates = {arm: rate(taken) for arm, taken in turns.items()}
    alone = [arm for arm in arms if (arm.precision, arm.batch, arm.processes) == ("int8", 1, 1)]
    lone_int8 = min(steps(turns[arm]).median for arm in alone)
    best_float32 = max(rates[arm] for arm in arms if (arm.precision, arm.batch) == ("float32", 8))
    best_int8 = max(rates[arm] for arm in arms if (arm.precision, arm.batch) == ("int8", 1))
    dtype = command.dtype_name(command.dtype_of(arguments))
    publish(
        Report(
            benchmark="onnx_peer",
            dtype=dtype,
            threads=arguments.threads,
            settings={
                "onnxruntime": onnxruntime.__version__,
                "optimisation": "all",
                "execution": "sequential",
                "spinning": "default (on)",
                "quantisation": "dynamic, matrix products, uint8 weights per tensor",
                "chunk": CHUNK_FRAMES,
                "left_chunks": _LEFT_CHUNKS,
                "seconds": arguments.seconds,
                "rounds": arguments.rounds,
            },
            tables={
                "difference from the engine in float32": [
                    {
                        "peer": f"{precision}, batch {batch}",
                        "largest difference": one.difference,
                        "same best token": one.same_best,
                    }
                    for (precision, batch), one in agreements.items()
                ],
                "throughput": [
                    *(
                        _row(f"engine, {streams} streams", engine_rates[streams], engine_steps[streams], None)
                        for streams in _ENGINE_STREAMS
                    ),
                    *(_row(arm.name, rates[arm], steps(turns[arm]), _reference(arm)) for arm in arms),
                ],
            },
            ratios={
                "target1_throughput_over_onnx_float32": engine_rates[32] / best_float32,
                "target1_throughput_over_onnx_int8": engine_rates[32] / best_int8,
                "target2_one_stream_step_over_onnx_int8": engine_steps[1].median / lone_int8,
            },
            notes=[_verdict(arms, rates)],
        ),
        arguments.json,
    )


def _row(name: str, times_real_time: float, step: Times, reference: float | None) -> Row:
    return {
        "arm": name,
        "x real time": times_real_time,
        **step.columns(),
        "reference": reference,
        "reached": None if reference is None else "yes" if times_real_time >= _REACHED * reference else "no",
    }


def _verdict(arms: Sequence[PeerArm], rates: Mapping[PeerArm, float]) -> str:
    """Whether the best arm of every kind that has a reference comes within 15 % of it."""
    best: dict[float, float] = {}
    for arm in arms:
        reference = _reference(arm)
        if reference is not None:
            best[reference] = max(rates[arm], best.get(reference, 0.0))
    reached = all(found >= _REACHED * reference for reference, found in best.items())
    here = ", ".join(instructions()) or "unknown"
    return (
        f"The peer {'reaches' if reached else 'does not reach'} the reference rates within 15 %. They were measured on "
        f"a processor with AMX and AVX-512; this one has {here}."
    )


if __name__ == "__main__":
    main()
