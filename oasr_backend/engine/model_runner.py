"""The model behind both paths: forward passes that end in frame scores."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from oasr_backend.config import ResolvedConfig
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.packing import PackedRow
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import StreamingRuntime, build_runtime
from oasr_backend.graphs.cache import GraphCache
from oasr_backend.graphs.capture import CAPTURE_BACKENDS, captures_on
from oasr_backend.graphs.ladder import OfflineShapes, batch_buckets
from oasr_backend.graphs.offline import OfflineGraphs
from oasr_backend.models.base import AsrModel
from oasr_backend.utils.lanes import Lanes, shares
from oasr_backend.utils.ranges import Ranges
from oasr_backend.utils.staging import to_device


class ModelRunner:
    """Runs chunks through the streaming runtime and clips through the model; the executors see requests only."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._device = config.device
        self._ranges = Ranges(config.nvtx, on_cuda=config.device.type == "cuda")
        # Graphs share the buffers that they read, so that one runs at a time.
        self._lanes = Lanes(1 if captures_on(config.device) else config.num_threads)
        self.streams: StreamingRuntime | None = None
        if config.streaming:
            self.streams = build_runtime(config.streaming_runtime or model.streaming_runtime, model, config)
        self._clips = OfflineGraphs(
            lambda inputs: model.encode_clips(inputs.features, inputs.lengths),
            model.geometry.frames_out,
            _offline_shapes(config) if captures_on(config.device) else None,
            config.device,
            GraphCache(
                CAPTURE_BACKENDS[config.device.type](config.device) if config.use_offline_cuda_graphs else None,
                config.offline_graph_max_captures,
                is_supported=model.feature_dim is not None,
            ),
        )

    @property
    def runtime(self) -> StreamingRuntime:
        """The streams' state; only where the engine streams."""
        assert self.streams is not None
        return self.streams

    def prewarm(self) -> None:
        """Captures the streaming steps, so that none is captured while a stream waits."""
        if self.streams is not None:
            self.streams.prewarm()

    def take_graph_counts(self) -> Mapping[str, int]:
        """Passes since the last call, by the name of their counter."""
        streaming = {} if self.streams is None else self.streams.take_graph_counts()
        counts = {f"engine_streaming_graph_steps:{outcome}": count for outcome, count in streaming.items()}
        offline = self._clips.cache.take_counts()
        return {**counts, **{f"engine_offline_graph_passes:{outcome}": count for outcome, count in offline.items()}}

    @property
    def graphs(self) -> Mapping[str, int]:
        """Captured shapes, by the name of their gauge."""
        streaming = {} if self.streams is None else {"engine_streaming_graphs": self.streams.usage.graphs}
        return {**streaming, "engine_offline_graphs": len(self._clips.cache)}

    def forward_chunks(
        self, requests: Sequence[Request], features: Tensor, frames: Sequence[int], needs: Needs
    ) -> FrameScores:
        """One step: `features` [B, window, bins], `frames` valid new frames a row -> scores of [B, chunk]."""

        def part(rows: range) -> FrameScores:
            own = slice(rows.start, rows.stop)
            return self._model.score(self.runtime.forward(requests[own], features[own], frames[own]), needs)

        parts = shares([1] * len(requests), self._lanes.worth(sum(frames)))
        scores = FrameScores.joined(self._lanes.run([partial(part, rows) for rows in parts]))
        with self._ranges("commit"):
            for request, count in zip(requests, frames, strict=True):
                request.offset += count
        return scores

    def forward_packed(self, features: Tensor, row: PackedRow, needs: Needs) -> FrameScores:
        """`features` [1, T, bins] of the clips in `row` -> scores of [B, n], frames past a clip's own are zeros."""

        def part(clips: range) -> FrameScores:
            own = row.part(clips, self._model.geometry)
            kept = to_device(np.array(own.kept, dtype=np.int64), self._device)
            own_features = features[:, own.first_feature :][:, : own.features]
            with self._ranges("encoder_call"):
                hidden = self._model.encode_packed(own_features, kept, own.frames)
            return self._model.score(hidden, needs)

        # Its shape is a sum of lengths, so that hardly two rows are alike.
        self._clips.cache.count("unsupported")
        parts = shares(row.frames, self._lanes.worth(sum(row.frames)))
        scores = FrameScores.joined(self._lanes.run([partial(part, clips) for clips in parts]), dim=1)
        return scores.unpacked(row.frames)

    def forward_clips(self, features: Tensor, frames: Sequence[int], needs: Needs) -> FrameScores:
        """`features` [B, T, bins] of whole clips, `frames` encoder frames a row -> scores of [B, n]."""

        def part(rows: range) -> FrameScores:
            own = slice(rows.start, rows.stop)
            with self._ranges("encoder_call"):
                hidden = self._clips.run(features[own], frames[own])
            return self._model.score(hidden, needs)

        parts = shares([1] * len(frames), self._lanes.worth(max(frames) * len(frames)))
        return FrameScores.joined(self._lanes.run([partial(part, rows) for rows in parts]))


def _offline_shapes(config: ResolvedConfig) -> OfflineShapes:
    return OfflineShapes(
        batch_buckets(config.max_batch_size, config.offline_graph_batch_buckets, config.preferred_batch_size),
        config.offline_graph_frame_granularity,
        config.offline_graph_max_frames,
        config.max_batch_frames,
    )
