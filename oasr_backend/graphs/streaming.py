"""Streaming steps as graphs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from oasr_backend.graphs.cache import Captured, GraphCache, StaticBuffer
from oasr_backend.graphs.capture import CaptureBackend
from oasr_backend.utils.staging import fill, to_device


@dataclass(frozen=True, order=True)
class StepShape:
    """What two steps have in common that one graph can serve. How far a row looks back is no part of it, but data."""

    blocks: int
    """Blocks that each row reads."""
    width: int
    """Rows, those of the padding lane included."""
    new_frames: int
    """New encoder frames a row, valid or not."""
    is_full: bool = False
    """Whether all of them are known to be valid in every row, which saves work; False of what is captured."""


@dataclass(frozen=True)
class StepInputs:
    """All that a step reads beside the caches: `features` [W, window, bins] float32, `indices` [N] int64."""

    features: Tensor
    indices: Tensor


Step = Callable[[StepInputs, StepShape], Tensor]
"""Runs a step and moves the caches on -> hidden [W, new frames, dim]."""


class StreamingGraphs:
    """Runs steps by replaying the graph of their shape; where there is none, the same step at the same shape."""

    def __init__(
        self,
        step: Step,
        idle: Callable[[StepShape], np.ndarray],
        window: Callable[[int], int],
        bins: int,
        device: torch.device,
        cache: GraphCache[StepShape, StepInputs],
    ):
        """`idle`: indices of a step in which every row is the padding lane; `window`: feature frames by new frames."""
        self._step = step
        self._idle = idle
        self._window = window
        self._bins = bins
        self._device = device
        self.cache = cache
        self._features = StaticBuffer(torch.float32, device)
        self._indices = StaticBuffer(torch.int64, device)

    def prewarm(self, shapes: Iterable[StepShape]) -> int:
        """Captures the steps of `shapes`; how many there are."""
        return sum(self.cache.add(shape, partial(self._make, shape)) for shape in shapes)

    def run(self, shape: StepShape, indices: np.ndarray, features: Tensor) -> Tensor:
        """`indices` [N] int64 of `shape`, `features` [B, window, bins] of its first rows -> hidden [B, n, dim]."""
        rows = features.shape[0]
        captured = self.cache.find(shape, partial(self._make, shape))
        if captured is None:
            if shape.width > rows:
                features = torch.nn.functional.pad(features, (0, 0, 0, 0, 0, shape.width - rows))
            return self._step(StepInputs(features, to_device(indices, self._device)), shape)[:rows]
        fill(captured.inputs.indices, indices)
        captured.inputs.features[:rows].copy_(features)
        captured.inputs.features[rows:].zero_()
        # The next replay writes where this one's output lies.
        return captured.graph.replay()[:rows].clone()

    def _make(self, shape: StepShape, backend: CaptureBackend) -> Captured[StepInputs]:
        """Captures a step of the padding lane alone: no stream notices."""
        indices = self._idle(shape)
        inputs = StepInputs(
            self._features.view(shape.width, self._window(shape.new_frames), self._bins),
            self._indices.view(len(indices)),
        )
        inputs.features.zero_()
        fill(inputs.indices, indices)
        # A graph that held this object would make a cycle, and with it a dropped engine outlive its last user.
        step = self._step
        graph = backend.capture(lambda: step(inputs, shape), (inputs.features, inputs.indices))
        return Captured(graph, inputs)
