"""Named ranges that a profiler shows: torch.profiler on any device, Nsight Systems on CUDA."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_NOTHING: AbstractContextManager[None] = nullcontext()


class Ranges:
    """Opens ranges by name, NAME[ROWS] with a number of rows; without effect, and nearly without cost, where none are
    wanted.
    """

    def __init__(self, enabled: bool = False, on_cuda: bool = False):
        self._enabled = enabled
        self._on_cuda = on_cuda

    def __call__(self, name: str, rows: int | None = None) -> AbstractContextManager[None]:
        return self._range(name, rows) if self._enabled else _NOTHING

    @contextmanager
    def _range(self, name: str, rows: int | None) -> Iterator[None]:
        name = name if rows is None else f"{name}[{rows}]"
        marked = torch.cuda.nvtx.range(name) if self._on_cuda else _NOTHING
        with torch.profiler.record_function(name), marked:
            yield


NO_RANGES = Ranges()
