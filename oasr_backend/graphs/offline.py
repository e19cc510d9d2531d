"""Offline passes as graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from oasr_backend.graphs.cache import Captured, GraphCache, StaticBuffer
from oasr_backend.graphs.capture import CaptureBackend
from oasr_backend.graphs.ladder import OfflineShape, OfflineShapes
from oasr_backend.utils.staging import fill, to_device


@dataclass(frozen=True)
class PassInputs:
    """`features` [B, T, bins] float32, `lengths` [B] int64 encoder frames."""

    features: Tensor
    lengths: Tensor


Encode = Callable[[PassInputs], Tensor]
"""-> hidden [B, n, dim]"""


class OfflineGraphs:
    """Runs passes over whole clips, padded to few shapes, by replaying the graph of their shape where there is one.

    Padding comes before the choice between graph and eager pass, so that a clip never depends on it.
    """

    def __init__(
        self,
        encode: Encode,
        frames_out: Callable[[int], int],
        shapes: OfflineShapes | None,
        device: torch.device,
        cache: GraphCache[OfflineShape, PassInputs],
    ):
        """`frames_out`: encoder frames by feature frames; `shapes` None: passes run as they are."""
        self._encode = encode
        self._frames_out = frames_out
        self._shapes = shapes
        self._device = device
        self.cache = cache
        self._features = StaticBuffer(torch.float32, device)
        self._lengths = StaticBuffer(torch.int64, device)

    def run(self, features: Tensor, frames: Sequence[int]) -> Tensor:
        """`features` [B, T, bins] of whole clips, `frames` encoder frames a row -> hidden [B, n, dim]."""
        rows, length, bins = features.shape
        if self._shapes is None:
            self.cache.count("disabled")
            return self._encode(PassInputs(features, to_device(np.array(frames, dtype=np.int64), self._device)))
        shape = self._shapes.of(rows, length)
        # A padded row has a frame, so that no softmax is empty.
        lengths = np.array([*frames, *[1] * (shape.rows - rows)], dtype=np.int64)
        captured = None
        if shape.is_captured:
            captured = self.cache.find(shape, partial(self._make, shape, bins))
        else:
            self.cache.count("oversized")
        if captured is None:
            padding = (0, 0, 0, shape.frames - length, 0, shape.rows - rows)
            padded = torch.nn.functional.pad(features, padding) if any(padding) else features
            hidden = self._encode(PassInputs(padded, to_device(lengths, self._device)))
        else:
            inputs = captured.inputs
            fill(inputs.lengths, lengths)
            inputs.features[:rows, :length].copy_(features)
            inputs.features[:rows, length:].zero_()
            inputs.features[rows:].zero_()
            hidden = captured.graph.replay()
        hidden = hidden[:rows, : self._frames_out(length)]
        # The next replay writes where this one's output lies.
        return hidden if captured is None else hidden.clone()

    def _make(self, shape: OfflineShape, bins: int, backend: CaptureBackend) -> Captured[PassInputs]:
        inputs = PassInputs(
            self._features.view(shape.rows, shape.frames, bins),
            self._lengths.view(shape.rows),
        )
        inputs.features.zero_()
        inputs.lengths.fill_(1)
        # A graph that held this object would make a cycle, and with it a dropped engine outlive its last user.
        encode = self._encode
        graph = backend.capture(lambda: encode(inputs), (inputs.features, inputs.lengths))
        return Captured(graph, inputs)
