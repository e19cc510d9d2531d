"""How the peer is run: precision, batch, and how the cores are shared."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class PeerArm:
    """`processes` of `threads` threads each, at `batch` streams or clips a call."""

    precision: str
    batch: int
    processes: int
    threads: int

    @property
    def name(self) -> str:
        return f"{self.precision}, batch {self.batch}, {self.processes} x {self.threads} threads"


def peer_arms(batches: Sequence[int], layouts: Iterable[tuple[int, int]]) -> list[PeerArm]:
    """Every precision at every batch by every one of `layouts`, (processes, threads), each once."""
    distinct = dict.fromkeys(layouts)
    return [PeerArm(precision, batch, *layout) for precision in PRECISIONS for batch in batches for layout in distinct]
