"""Offline passes as graphs: padded on every path, the same numbers on all."""

import numpy as np
import pytest
from torch import Tensor

from oasr_backend.engine import ASREngine
from oasr_backend.graphs.capture import CAPTURE_BACKENDS
from tests.engine.engines import BATCH_NORM, RecordingStrategy, assert_idle, speech
from tests.graphs.engines import CLOSE, SAME, Captures, assert_close, counts

CLIPS = [speech(length, index % 3) for index, length in enumerate((16000, 21000, 33000, 30000, 8000, 600, 0))]
BATCHES = (CLIPS[:1], CLIPS[:3], CLIPS[3:], CLIPS[1:2])


def run(engine: ASREngine) -> None:
    for batch in BATCHES:
        engine.transcribe_outputs(list(batch), streaming=False)


def by_clip(strategy: RecordingStrategy) -> list[np.ndarray]:
    return [session.matrix for session in strategy.sessions if session.chunks]


@pytest.mark.parametrize("graphs", [{}, {"use_offline_cuda_graphs": False}, {"offline_graph_max_captures": 1}])
def test_all_paths_compute_the_same(captures: Captures, graphs: dict[str, object]) -> None:
    first, strategy = captures.recording(service_mode="offline")
    run(first)
    other, other_strategy = captures.recording(service_mode="offline", **graphs)
    run(other)
    assert_close(by_clip(other_strategy), by_clip(strategy), SAME)
    assert_idle(first)


@pytest.mark.parametrize("checkpoint", [None, BATCH_NORM])
def test_padding_changes_nothing(monkeypatch: pytest.MonkeyPatch, checkpoint: object) -> None:
    """A causal model, and one whose convolutions look ahead where it has any."""
    captures = Captures("cpu", monkeypatch)
    path = {} if checkpoint is None else {"path": checkpoint}
    graphed, strategy = captures.recording(**path, offline_graph_frame_granularity=100)
    run(graphed)
    monkeypatch.delitem(CAPTURE_BACKENDS, "cpu")
    bare, bare_strategy = captures.recording(**path)
    run(bare)
    assert_close(by_clip(strategy), by_clip(bare_strategy), CLOSE)


def test_a_shape_is_captured_when_it_first_comes(captures: Captures) -> None:
    engine = captures.engine(service_mode="offline")
    assert counts(engine, "offline") == {}
    for _ in range(3):
        engine.transcribe_outputs([CLIPS[0], CLIPS[1]], streaming=False)
    # The same buckets: two rows, 128 frames.
    engine.transcribe_outputs([CLIPS[1], speech(20000)], streaming=False)
    assert counts(engine, "offline") == {"captured": 1, "replayed": 3}
    assert engine.metrics_snapshot().gauges["engine_offline_graphs"] == 1


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({"use_cuda_graphs": False}, "disabled"),
        ({"use_offline_cuda_graphs": False}, "disabled"),
        ({"offline_graph_max_frames": 64}, "oversized"),
        ({"offline_graph_batch_buckets": (1,)}, "oversized"),
        ({"max_batch_frames": 100}, "oversized"),
        ({"enable_sequence_packing": True}, "unsupported"),
    ],
)
def test_what_is_not_captured_is_counted_by_reason(
    captures: Captures, options: dict[str, object], outcome: str
) -> None:
    engine = captures.engine(service_mode="offline", **options)
    outputs = engine.transcribe_outputs([CLIPS[0], speech(16000, 1)], streaming=False)
    assert all(output.finish_reason == "stop" for output in outputs)
    assert set(counts(engine, "offline")) == {outcome}


def test_past_the_budget_passes_run_eagerly(captures: Captures) -> None:
    engine = captures.engine(service_mode="offline", offline_graph_max_captures=1)
    run(engine)
    found = counts(engine, "offline")
    assert found["captured"] == 1 and found["saturated"] > 0


def test_a_foreign_model_is_not_captured(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = captures.engine(service_mode="offline")
    monkeypatch.setattr(engine._runner._clips.cache, "_is_supported", False)
    run(engine)
    assert set(counts(engine, "offline")) == {"unsupported"}


def test_what_lies_in_the_buffers_never_shows(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long batch, then short ones at the same shape: rows and frames behind them are zeros again."""
    engine = captures.engine(service_mode="offline")
    seen: list[Tensor] = []
    encode = engine._runner._clips._encode

    def record(inputs: object) -> Tensor:
        seen.append(inputs.features.clone())  # type: ignore[attr-defined]
        return encode(inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(engine._runner._clips, "_encode", record)
    engine.transcribe_outputs([CLIPS[1]] * 4, streaming=False)
    engine.transcribe_outputs([CLIPS[0]] * 3, streaming=False)
    if captures.device == "cpu":
        last = seen[-1]
        assert last.shape == (4, 128, 80)
        assert not last[:, 98:].any() and not last[3:].any() and last[:3, :98].isfinite().all()
