"""Captured graphs by the shape of their step, within a budget."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

from oasr_backend.graphs.capture import CaptureBackend, Graph

log = logging.getLogger(__name__)

Outcome = Literal["replayed", "captured", "disabled", "unsupported", "oversized", "saturated", "failed"]
"""What became of a step: `replayed` and `captured` ran as a graph, that was there or was made for it; the others ran
eagerly, because graphs are off, the model or the kind of pass has none, the shape is out of bounds, the budget is
spent, or a capture of that shape failed."""

Key = TypeVar("Key", bound=Hashable)
Inputs = TypeVar("Inputs")


@dataclass(frozen=True)
class Captured(Generic[Inputs]):
    """A graph and the tensors that it reads."""

    graph: Graph
    inputs: Inputs


class StaticBuffer:
    """Memory for the inputs of graphs that never run at the same time: all views lie on each other.

    A view larger than any before gets new memory; earlier ones keep the old.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._memory = torch.empty(0, dtype=dtype, device=device)

    def view(self, *shape: int) -> Tensor:
        """[*shape], contents undefined."""
        size = torch.Size(shape).numel()
        if size > self._memory.numel():
            self._memory = torch.empty(size, dtype=self._memory.dtype, device=self._memory.device)
        return self._memory[:size].view(shape)


class GraphCache(Generic[Key, Inputs]):
    """At most `max_graphs` graphs. A shape whose capture failed is not tried again; without memory left, none is."""

    def __init__(self, backend: CaptureBackend | None, max_graphs: int, is_supported: bool = True):
        """`backend` None: everything runs eagerly."""
        self.backend = backend
        self._max_graphs = max_graphs
        self._is_supported = is_supported
        self._graphs: dict[Key, Captured[Inputs]] = {}
        self._failed: set[Key] = set()
        self._is_full = False
        self._counts: Counter[Outcome] = Counter()

    def __len__(self) -> int:
        return len(self._graphs)

    def __contains__(self, key: Key) -> bool:
        return key in self._graphs

    def find(self, key: Key, make: Callable[[CaptureBackend], Captured[Inputs]]) -> Captured[Inputs] | None:
        """The graph of a shape, made when there is room for it; None: run eagerly. Counts which."""
        captured = self._graphs.get(key)
        if captured is not None:
            self.count("replayed")
            return captured
        captured, outcome = self._make(key, make)
        self.count(outcome)
        return captured

    def add(self, key: Key, make: Callable[[CaptureBackend], Captured[Inputs]]) -> bool:
        """Makes a graph ahead of need; whether there is one now. Counts nothing."""
        return key in self._graphs or self._make(key, make)[0] is not None

    def count(self, outcome: Outcome) -> None:
        self._counts[outcome] += 1

    def take_counts(self) -> Mapping[str, int]:
        """Steps by outcome since the last call."""
        counts, self._counts = self._counts, Counter()
        return counts  # type: ignore[return-value]

    def _make(
        self, key: Key, make: Callable[[CaptureBackend], Captured[Inputs]]
    ) -> tuple[Captured[Inputs] | None, Outcome]:
        if self.backend is None:
            return None, "disabled"
        if not self._is_supported:
            return None, "unsupported"
        if self._is_full or key in self._failed:
            return None, "failed"
        if len(self._graphs) >= self._max_graphs:
            return None, "saturated"
        try:
            self._graphs[key] = made = make(self.backend)
        except Exception as error:
            self._failed.add(key)
            self._is_full = isinstance(error, torch.OutOfMemoryError | MemoryError)
            log.warning(
                "no graph of %s%s: %s",
                key,
                "; memory is exhausted, so no more are made" if self._is_full else "",
                error,
                exc_info=not self._is_full,
            )
            return None, "failed"
        return made, "captured"
