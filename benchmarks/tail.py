"""Steps beside a busy process: the longest of them against the median, by threads and how these wait.

    python -m benchmarks.tail --json FILE [--streams 8] [--seconds 5] [--rounds 3]

Every arm is a process of its own, started with its variables. In turns each steps alone, then beside a process that
does nothing but spin, pinned nowhere. The target is answered by the launcher's choice.
Its median is that of the quiet turns, so that a slower median hides nothing.
"""

import contextlib
import multiprocessing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import command, environment
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.reporting import Report, Row, publish
from benchmarks.streams import LockstepHost
from benchmarks.timing import Times, Turn
from benchmarks.workers import Worker
from oasr_backend.server.environment import wait_policy
from oasr_backend.utils.host import has_bfloat16_units

_LEFT_CHUNKS = 4
_WAITS: tuple[tuple[str, str], ...] = (
    ("GOMP_SPINCOUNT", "0"),
    ("GOMP_SPINCOUNT", "1000"),
    ("GOMP_SPINCOUNT", "10000"),
    ("OMP_WAIT_POLICY", "PASSIVE"),
)
_CHOSEN = next(iter(wait_policy(has_bfloat16_units()).items()))


@dataclass(frozen=True)
class Arm:
    """A number of threads, and the variable that says how they wait."""

    threads: int
    wait: tuple[str, str]

    @property
    def name(self) -> str:
        return f"{self.threads} threads, {'='.join(self.wait)}"

    @property
    def variables(self) -> dict[str, str]:
        return {"OMP_NUM_THREADS": str(self.threads), self.wait[0]: self.wait[1]}


@contextlib.contextmanager
def busy_neighbour() -> Iterator[None]:
    """A process that spins for as long."""
    process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _spin() -> None:
    while True:
        pass


def start(arm: Arm, checkpoint: Path, dtype: str, streams: int) -> Worker:
    with environment.only(arm.variables):
        return Worker(LockstepHost, checkpoint, dtype, arm.threads, [streams], _LEFT_CHUNKS)


def measure(
    workers: Mapping[Arm, Worker], streams: int, seconds: float, rounds: int
) -> tuple[dict[Arm, Times], dict[Arm, Times]]:
    """Times of the steps alone and beside the busy process."""
    quiet: dict[Arm, list[float]] = {arm: [] for arm in workers}
    beside: dict[Arm, list[float]] = {arm: [] for arm in workers}
    for _ in range(rounds):
        for arm, worker in workers.items():
            turn: Turn = worker.call("turn", streams, seconds)
            quiet[arm] += turn.steps
            with busy_neighbour():
                turn = worker.call("turn", streams, seconds)
            beside[arm] += turn.steps
    return (
        {arm: Times.of_seconds(steps) for arm, steps in quiet.items()},
        {arm: Times.of_seconds(steps) for arm, steps in beside.items()},
    )


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one turn")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = command.parse(parser)
    checkpoint = make_checkpoint(arguments.checkpoint)
    arms = [Arm(threads, wait) for threads in sorted({1, arguments.threads}) for wait in _WAITS]
    with contextlib.ExitStack() as stack:
        workers = {arm: stack.enter_context(start(arm, checkpoint, arguments.dtype, arguments.streams)) for arm in arms}
        quiet, beside = measure(workers, arguments.streams, arguments.seconds, arguments.rounds)
    rows: list[Row] = [
        {
            "threads": arm.threads,
            "wait": "=".join(arm.wait),
            "alone": quiet[arm].median,
            "p99": quiet[arm].p99,
            "max": quiet[arm].maximum,
            "beside": beside[arm].median,
            "p99 ": beside[arm].p99,
            "max ": beside[arm].maximum,
            "max / alone": beside[arm].maximum / quiet[arm].median,
            "max / beside": beside[arm].maximum / beside[arm].median,
        }
        for arm in arms
    ]
    chosen = Arm(arguments.threads, _CHOSEN)
    publish(
        Report(
            benchmark="tail",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={
                "streams": arguments.streams,
                "left_chunks": _LEFT_CHUNKS,
                "seconds": arguments.seconds,
                "rounds": arguments.rounds,
                "chosen": chosen.name,
            },
            tables={"medians, p99 and maxima of the steps in ms, alone and beside a busy process": rows},
            ratios={
                "target7_max_step_over_median": beside[chosen].maximum / quiet[chosen].median,
                **{f"max_step_over_median, {arm.name}": beside[arm].maximum / quiet[arm].median for arm in arms},
            },
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
