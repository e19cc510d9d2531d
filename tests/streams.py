"""The real streaming path, fed with features instead of audio, giving whole matrices of log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from oasr_backend.config import EngineConfig, resolve
from oasr_backend.decode.scores import Needs
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.request import Request
from oasr_backend.models.base import AsrModel


@dataclass(eq=False)
class FeatureStream:
    """A stream whose features are known beforehand."""

    request: Request
    features: np.ndarray
    """[frames, bins] float32."""
    cursor: int = 0
    sizes: list[int] = field(default_factory=list)
    """Encoder frames of each chunk so far."""
    chunks: list[np.ndarray] = field(default_factory=list)

    @property
    def log_probs(self) -> np.ndarray:
        """[frames so far, vocabulary]."""
        return np.concatenate(self.chunks)

    @property
    def slot(self) -> int:
        assert self.request.slot is not None
        return self.request.slot


class FeatureStreams:
    """Cuts features into windows, the last one short, and runs them through `ModelRunner`."""

    def __init__(self, model: AsrModel, *, chunk: int = 16, left_chunks: int = -1, streams: int = 4, **options):
        """`options` are those of EngineConfig."""
        settings = {"ckpt_dir": "unused", "device": "cpu", "dtype": "float32", "max_blocks_per_seq": 64, **options}
        config = EngineConfig(chunk_size=chunk, num_left_chunks=left_chunks, max_batch_size=streams, **settings)
        self._geometry = model.config.encoder.geometry
        self._chunk = chunk
        self._left_chunks = left_chunks
        with torch.inference_mode():
            self.runner = ModelRunner(model, resolve(config))

    @torch.inference_mode()
    def open(self, features: np.ndarray, chunk: int | None = None) -> FeatureStream:
        request = Request("stream", True, chunk_size=chunk or self._chunk, num_left_chunks=self._left_chunks)
        self.runner.runtime.allocate(request)
        return FeatureStream(request, features)

    def close(self, stream: FeatureStream) -> None:
        self.runner.runtime.free(stream.request)

    def has_window(self, stream: FeatureStream) -> bool:
        return len(stream.features) - stream.cursor >= self._geometry.min_frames

    @torch.inference_mode()
    def step(self, streams: Sequence[FeatureStream]) -> None:
        """One forward over streams of equal chunk size, each of which has a window."""
        chunk = streams[0].request.chunk_size
        window = self._geometry.window(chunk)
        # What lies behind a short window must not matter.
        batch = np.full((len(streams), window, streams[0].features.shape[1]), 7.0, dtype=np.float32)
        frames = []
        for row, stream in enumerate(streams):
            part = stream.features[stream.cursor : stream.cursor + window]
            batch[row, : len(part)] = part
            frames.append(self._geometry.frames_out(len(part)))
            stream.cursor += self._geometry.stride(chunk)
            assert self.runner.runtime.reserve(stream.request, frames[-1]), "the stream is at its page ceiling"
        requests = [stream.request for stream in streams]
        scores = self.runner.forward_chunks(requests, torch.from_numpy(batch), frames, Needs(log_probs=True))
        assert scores.full is not None
        for stream, rows, count in zip(streams, scores.full.numpy(), frames, strict=True):
            stream.sizes.append(count)
            stream.chunks.append(rows[:count].copy())

    def run(self, streams: Sequence[FeatureStream]) -> None:
        """Steps all streams to their ends, together as long as they last."""
        while ready := [stream for stream in streams if self.has_window(stream)]:
            self.step(ready)
