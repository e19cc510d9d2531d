"""One number of streams in real time, and whether it passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oasr_client import audio
from oasr_client.errors import ServerUnreachable
from oasr_client.load.processes import Processes
from oasr_client.load.run import LoadRun
from oasr_client.load.streams import Target, closed_loop

# A step is over when an answer is later than so many chunks: it has failed, and it would only get later.
_GIVE_UP_CHUNKS = 3
# A client whose wake-ups are later than this share of a chunk does not keep the pace that it claims.
_LAG_SHARE = 0.25
PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Verdict:
    """Why a number of streams does not pass.

    Attributes:
        kind: "passes", "refused", "lost", "failed", "late", "client_late" or "texts_differ".
        sentence: the same for reading, "" where it passes.
    """

    kind: str = "passes"
    sentence: str = ""

    @property
    def passes(self) -> bool:
        return self.kind == "passes"


@dataclass(frozen=True)
class Step:
    """So many streams in real time, of so many processes."""

    streams: int
    run: LoadRun
    verdict: Verdict
    differing: int = 0
    processes: int = 1

    @property
    def spread(self) -> float:
        """The 99th percentile of the latency as a multiple of its median."""
        latency = self.run.latency
        return latency.p99 / latency.median if latency.median else 0.0

    @property
    def line(self) -> str:
        """For reading."""
        latency, lag = self.run.latency, self.run.client_lag
        figures = ", ".join(f"p{at} {latency.percentile(at):.0f} ms" for at in (50, 95, 99))
        verdict = self.verdict.sentence or "passes"
        return f"{self.streams:5} streams: {figures}, client late by {lag.p99:.0f} ms: {verdict}"

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        latency, final = self.run.latency, self.run.final_latency
        return {
            "streams": self.streams,
            "processes": self.processes,
            "passes": self.verdict.passes,
            "verdict": self.verdict.kind,
            "reason": self.verdict.sentence,
            "chunks": len(self.run.answers),
            "errors": len(self.run.errors),
            "texts_differing": self.differing,
            "latency_ms": {
                **{f"p{at}": round(latency.percentile(at), 2) for at in PERCENTILES},
                "max": round(latency.maximum, 2),
            },
            "final_latency_ms": {f"p{at}": round(final.percentile(at), 2) for at in PERCENTILES},
            "client_late_ms_p99": round(self.run.client_lag.p99, 2),
        }


def judge(run: LoadRun, differing: int, allowed: int = 0) -> Verdict:
    """Whether a load passes: no error, on both sides in time, and `allowed` streams at most whose text differs."""
    chunk_ms = 1000 * run.chunk_s
    late, lag = run.latency.p99, run.client_lag.p99
    if run.errors:
        return _failed(run)
    if run.gave_up or late >= chunk_ms:
        more = f"; this client was late itself by {lag:.0f} ms" if lag >= _LAG_SHARE * chunk_ms else ""
        was = "stopped at" if run.gave_up else "late:"
        figure = run.latency.maximum if run.gave_up else late
        name = "an answer after" if run.gave_up else "p99"
        return Verdict("late", f"{was} {name} {figure:.0f} ms, a chunk has {chunk_ms:.0f} ms{more}")
    if lag >= _LAG_SHARE * chunk_ms:
        return Verdict(
            "client_late",
            f"not valid: this client was late itself by {lag:.0f} ms (p99), so its machine is too slow or too busy for "
            "so many streams",
        )
    if differing > allowed:
        return Verdict("texts_differ", f"{differing} of {len(run.texts)} texts differ from those of a stream alone")
    return Verdict()


def _failed(run: LoadRun) -> Verdict:
    first = run.errors[0]
    kind = "failed"
    if isinstance(first, ServerUnreachable):
        kind = "lost"
    elif first.status == "UNAVAILABLE":
        kind = "refused"
    return Verdict(kind, f"{len(run.errors)} of {len(run.texts)} streams {kind}, the first: {first}")


def texts_alone(target: Target, waves: Sequence[audio.Samples]) -> list[str]:
    """The text of every recording in a stream that has the server to itself. Raises OasrError."""
    texts = []
    for wave in waves:
        run = closed_loop(target, [wave])
        if run.errors:
            raise run.errors[0]
        texts.append(run.texts[0] or "")
    return texts


def try_streams(
    target: Target,
    streams: int,
    waves: Sequence[audio.Samples],
    alone: Sequence[str],
    processes: Processes,
    differing_share: float = 0.0,
) -> Step:
    """So many streams in real time; they take the recordings in turn, whose texts `alone` must be theirs.

    Args:
        processes: those that they run in.
        differing_share: the share of streams that may have another text.
    """
    chosen = [number % len(waves) for number in range(streams)]
    run = processes.paced(target, [waves[one] for one in chosen], _GIVE_UP_CHUNKS * target.chunk_s, seed=streams)
    differing = sum(text is not None and text != alone[one] for one, text in zip(chosen, run.texts))
    verdict = judge(run, differing, int(differing_share * streams))
    return Step(streams, run, verdict, differing, processes.count_for(streams, target.chunk_s))
