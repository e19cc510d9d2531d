"""The model behind both paths: forward passes that end in frame scores."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from oasr_backend.config import ResolvedConfig
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.packing import PackedRow
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import StreamingRuntime, build_runtime
from oasr_backend.models.base import AsrModel
from oasr_backend.utils.lanes import Lanes, shares


class ModelRunner:
    """Runs chunks through the streaming runtime and clips through the model; the executors see requests only."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._device = config.device
        self._lanes = Lanes(config.num_threads if config.device.type == "cpu" else 1)
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

        def part(rows: range) -> FrameScores:
            own = slice(rows.start, rows.stop)
            return self._model.score(self.runtime.forward(requests[own], features[own], frames[own]), needs)

        parts = shares([1] * len(requests), self._lanes.worth(sum(frames)))
        scores = FrameScores.joined(self._lanes.run([partial(part, rows) for rows in parts]))
        for request, count in zip(requests, frames, strict=True):
            request.offset += count
        return scores

    def forward_packed(self, features: Tensor, row: PackedRow, needs: Needs) -> FrameScores:
        """`features` [1, T, bins] of the clips in `row` -> scores of [B, n], frames past a clip's own are zeros."""

        def part(clips: range) -> FrameScores:
            own = row.part(clips, self._model.geometry)
            kept = torch.tensor(own.kept, device=self._device)
            own_features = features[:, own.first_feature :][:, : own.features]
            hidden = self._model.encode_packed(own_features, kept, own.frames)
            return self._model.score(hidden, needs)

        parts = shares(row.frames, self._lanes.worth(sum(row.frames)))
        scores = FrameScores.joined(self._lanes.run([partial(part, clips) for clips in parts]), dim=1)
        return scores.unpacked(row.frames)

    def forward_clips(self, features: Tensor, frames: Sequence[int], needs: Needs) -> FrameScores:
        """`features` [B, T, bins] of whole clips, `frames` encoder frames a row -> scores of [B, n]."""

        def part(rows: range) -> FrameScores:
            own = slice(rows.start, rows.stop)
            lengths = torch.tensor(frames[own], device=self._device)
            return self._model.score(self._model.encode_clips(features[own], lengths), needs)

        parts = shares([1] * len(frames), self._lanes.worth(max(frames) * len(frames)))
        return FrameScores.joined(self._lanes.run([partial(part, rows) for rows in parts]))
