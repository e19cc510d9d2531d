"""Engines that capture, on whatever device there is."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from oasr_backend.decode.base import STRATEGIES, DecodeSetup, StrategyKind
from oasr_backend.engine import ASREngine
from oasr_backend.graphs.capture import CAPTURE_BACKENDS
from oasr_backend.graphs.replay import ReplayCapture
from tests.engine.engines import RecordingStrategy, drain, every, make_engine

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")],
    ),
]
# A replay runs the kernels of the eager pass; other shapes run others.
SAME, CLOSE = 1e-5, 1e-3


class Captures:
    """Makes engines whose steps are captured; on CPU they are recorded and replayed."""

    def __init__(self, device: str, monkeypatch: pytest.MonkeyPatch):
        self.device = device
        if device == "cpu":
            monkeypatch.setitem(CAPTURE_BACKENDS, "cpu", ReplayCapture)
        self._monkeypatch = monkeypatch

    def engine(self, **options: object) -> ASREngine:
        return make_engine(device=self.device, **{"dtype": "float32", **options})  # type: ignore[arg-type]

    def recording(self, **options: object) -> tuple[ASREngine, RecordingStrategy]:
        """An engine that keeps every log-probability, and what keeps them."""
        strategy = RecordingStrategy(DecodeSetup(0, 0))
        self._monkeypatch.setitem(STRATEGIES, "recording", StrategyKind(lambda setup: strategy))
        return self.engine(decode_method="recording", **options), strategy


def counts(engine: ASREngine, kind: str = "streaming") -> dict[str, int]:
    """Passes by outcome."""
    name = {"streaming": "engine_streaming_graph_steps:", "offline": "engine_offline_graph_passes:"}[kind]
    counters = engine.metrics_snapshot().counters
    return {key.removeprefix(name): int(value) for key, value in counters.items() if key.startswith(name)}


def staggered(engine: ASREngine, waves: Sequence[np.ndarray], piece: int = 6000, **options: object) -> list[str]:
    """Streams that begin one after another and end in any order, so that a step has many offsets; ids in order."""
    ids: list[str] = []
    pending: list[list[np.ndarray]] = []
    queue = [every(wave, piece) for wave in waves]
    while queue or any(pending):
        if queue and engine.free_streams:
            ids.append(engine.add_streaming_request(**options))  # type: ignore[arg-type]
            pending.append(queue.pop(0))
        for request_id, pieces in zip(ids, pending, strict=True):
            if pieces:
                chunk = pieces.pop(0)
                engine.feed_chunk(request_id, chunk, is_last=not pieces)
        engine.step()
    drain(engine)
    return ids


def matrices(strategy: RecordingStrategy) -> list[np.ndarray]:
    """Log-probabilities of each stream, in the order in which they began."""
    return [session.matrix for session in strategy.sessions]


def assert_close(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)
