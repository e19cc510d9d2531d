"""The model behind both paths: forward passes that end in frame scores."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.config import ResolvedConfig
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.packing import PackedRow
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import StreamingRuntime, build_runtime
from oasr_backend.models.base import AsrModel


class ModelRunner:
    """Runs chunks through the streaming runtime and clips through the model; the executors see requests only."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._device = config.device
        self.streams: StreamingRuntime | None = None
        if config.streaming:
            self.streams = build_runtime(config.streaming_runtime or model.streaming_runtime, model, config)

    @property
    def runtime(self) -> StreamingRuntime:
        """The streams' state; only where the engine streams."""
        assert self.streams is not None
        return self.streams

    def forward_chunks(
        self, requests: Sequence[Request], features: Tensor, frames: Sequence[int], needs: Needs
    ) -> FrameScores:
        """One step: `features` [B, window, bins], `frames` valid new frames a row -> scores of [B, chunk]."""
        scores = self._model.score(self.runtime.forward(requests, features, frames), needs)
        for request, count in zip(requests, frames, strict=True):
            request.offset += count
        return scores

    def forward_packed(self, features: Tensor, row: PackedRow, needs: Needs) -> FrameScores:
        """`features` [1, T, bins] of the clips in `row` -> scores of [B, n], frames past a clip's own are zeros."""
        kept = torch.tensor(row.kept, device=self._device)
        hidden = self._model.encode_packed(features, kept, row.frames)
        return self._model.score(hidden, needs).unpacked(row.frames)

    def forward_clips(self, features: Tensor, frames: Sequence[int], needs: Needs) -> FrameScores:
        """`features` [B, T, bins] of whole clips, `frames` encoder frames a row -> scores of [B, n]."""
        lengths = torch.tensor(frames, device=self._device)
        return self._model.score(self._model.encode_clips(features, lengths), needs)
