"""Record and replay without a device: the same rules as CUDA graphs, and what breaks them shows."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from oasr_backend.graphs.capture import CaptureBackend, Graph


def spoil(tensor: Tensor) -> None:
    """Fills with NaN, or with an index that nothing has."""
    tensor.fill_(float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min)


class ReplayedGraph(Graph):
    def __init__(self, backend: "ReplayCapture", step: Callable[[], Tensor], inputs: Sequence[Tensor], output: Tensor):
        self._backend = backend
        self._step = step
        self._inputs = tuple(inputs)
        self.output = output
        self._addresses = [tensor.data_ptr() for tensor in inputs]

    def replay(self) -> Tensor:
        assert [tensor.data_ptr() for tensor in self._inputs] == self._addresses
        # Graphs share their memory: no output outlives the next replay.
        self._backend.spoil_outputs()
        self.output.copy_(self._step())
        for tensor in self._inputs:
            spoil(tensor)
        return self.output


class ReplayCapture(CaptureBackend):
    """Runs a recorded step eagerly on its own inputs, which are spoilt behind every run: each must be filled anew."""

    def __init__(self, device: torch.device):
        self.graphs: list[ReplayedGraph] = []

    def capture(self, step: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Graph:
        self.spoil_outputs()
        graph = ReplayedGraph(self, step, inputs, step().clone())
        self.graphs.append(graph)
        for tensor in (*inputs, graph.output):
            spoil(tensor)
        return graph

    def spoil_outputs(self) -> None:
        for graph in self.graphs:
            spoil(graph.output)
