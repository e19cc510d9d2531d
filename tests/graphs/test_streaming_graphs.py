"""Streaming steps as graphs: the same numbers as without, whatever the branch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr_backend.engine import ASREngine
from oasr_backend.engine.runtimes.paged import PagedRuntime
from oasr_backend.graphs.capture import CAPTURE_BACKENDS, CaptureBackend, Graph
from oasr_backend.graphs.streaming import StepShape
from tests.engine.engines import STREAMS, assert_idle, drain, make_engine, speech
from tests.graphs.engines import CLOSE, SAME, Captures, assert_close, counts, matrices, staggered

# Streams that begin anew in the slots of others, of lengths whose last chunk is short.
WAVES = [speech(length, utterance) for length, utterance in ((52000, 0), (31000, 1), (9000, 2), (40123, 1), (27000, 2))]


def runtime(engine: ASREngine) -> PagedRuntime:
    assert isinstance(engine._runner.runtime, PagedRuntime)
    return engine._runner.runtime


@pytest.mark.parametrize("left_chunks", [-1, 2])
def test_graphs_compute_what_eager_steps_do(captures: Captures, left_chunks: int) -> None:
    """Streams of other offsets, short last chunks, slots that are used again."""
    graphed, strategy = captures.recording(num_left_chunks=left_chunks)
    staggered(graphed, WAVES)
    eager, eager_strategy = captures.recording(num_left_chunks=left_chunks, use_cuda_graphs=False)
    # With graphs off widths are exact; what is read of the cache is the same.
    staggered(eager, WAVES)
    assert_close(matrices(strategy), matrices(eager_strategy), CLOSE)
    assert set(counts(graphed)) == {"replayed"} and set(counts(eager)) == {"disabled"}
    assert_idle(graphed)


def test_an_eager_fallback_runs_at_the_very_shape_of_the_graph(captures: Captures) -> None:
    graphed, strategy = captures.recording()
    staggered(graphed, WAVES)
    other, other_strategy = captures.recording(streaming_graph_max_shapes=1)
    staggered(other, WAVES)
    assert_close(matrices(strategy), matrices(other_strategy), SAME)
    assert counts(other)["saturated"] > 0


def test_graphs_equal_an_engine_that_captures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures("cpu", monkeypatch)
    graphed, strategy = captures.recording(streaming_graph_batch_ladder=(3,))
    staggered(graphed, WAVES)
    monkeypatch.delitem(CAPTURE_BACKENDS, "cpu")
    bare, bare_strategy = captures.recording()
    staggered(bare, WAVES)
    assert_close(matrices(strategy), matrices(bare_strategy), CLOSE)
    assert runtime(bare)._steps.cache.backend is None


def test_before_the_engine_is_ready_every_shape_is_captured(captures: Captures) -> None:
    engine = captures.engine()
    shapes = len(runtime(engine)._widths) * len(runtime(engine)._blocks)
    assert engine.metrics_snapshot().gauges["engine_streaming_graphs"] == shapes == 3 * 8
    assert counts(engine) == {}
    staggered(engine, WAVES)
    assert set(counts(engine)) == {"replayed"}
    assert engine.metrics_snapshot().gauges["engine_streaming_graphs"] == shapes


def test_a_growing_history_goes_from_rung_to_rung(captures: Captures, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = captures.engine()
    seen: list[StepShape] = []
    run = runtime(engine)._steps.run

    def record(shape: StepShape, indices: np.ndarray, features: Tensor) -> Tensor:
        seen.append(shape)
        return run(shape, indices, features)

    monkeypatch.setattr(runtime(engine)._steps, "run", record)
    engine.transcribe_outputs([speech(10240 * 12)])
    assert [shape.blocks for shape in seen] == [1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13][: len(seen)]
    assert len(seen) >= 11 and {shape.width for shape in seen} == {1}


def test_a_smaller_chunk_is_captured_when_it_first_comes(captures: Captures) -> None:
    engine = captures.engine()
    staggered(engine, [WAVES[2]], chunk_size=8)
    found = counts(engine)
    assert found["captured"] >= 1 and found["replayed"] > 0
    staggered(engine, [WAVES[2]], chunk_size=8)
    assert counts(engine)["captured"] == found["captured"]


def test_past_the_budget_steps_run_eagerly(captures: Captures) -> None:
    engine, strategy = captures.recording(streaming_graph_max_shapes=8)
    # Eight shapes: the widest at every length of history.
    assert {shape.width for shape in runtime(engine)._steps.cache._graphs} == {STREAMS}
    staggered(engine, WAVES)
    found = counts(engine)
    assert set(found) == {"replayed", "saturated"} and min(found.values()) > 0
    assert engine.metrics_snapshot().gauges["engine_streaming_graphs"] == 8
    assert all(np.isfinite(matrix).all() for matrix in matrices(strategy))


class Failing(CaptureBackend):
    """Captures nothing."""

    attempts = 0

    def __init__(self, error: Exception):
        self._error = error

    def capture(self, step: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Graph:
        Failing.attempts += 1
        raise self._error


@pytest.mark.parametrize(
    ("error", "attempts"), [(RuntimeError("operation not permitted"), 24), (torch.OutOfMemoryError("full"), 1)]
)
def test_a_shape_that_cannot_be_captured_is_tried_once_and_runs_eagerly(
    monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int
) -> None:
    monkeypatch.setattr(Failing, "attempts", 0)
    captures = Captures("cpu", monkeypatch)
    graphed, strategy = captures.recording()
    staggered(graphed, WAVES)
    monkeypatch.setitem(CAPTURE_BACKENDS, "cpu", lambda device: Failing(error))
    engine, failing_strategy = captures.recording()
    staggered(engine, WAVES)
    assert Failing.attempts == attempts
    assert set(counts(engine)) == {"failed"}
    assert_close(matrices(failing_strategy), matrices(strategy), SAME)


def test_a_capture_in_the_middle_of_a_stream_touches_the_padding_lane_only(captures: Captures) -> None:
    engine = captures.engine()
    ids = [engine.add_streaming_request() for _ in range(3)]
    for request_id in ids:
        engine.feed_chunk(request_id, speech(30000))
        engine.step()
    drain(engine)
    paged = runtime(engine)
    layers = paged._model.cache_spec.layers

    def state() -> list[Tensor]:
        held = [paged.attention.read(slot, layer) for slot in range(3) for layer in range(layers)]
        of_convolution = [paged.convolution.read(slot, layer) for slot in range(3) for layer in range(layers)]
        return [part.clone() for part in (*chain(*held), *of_convolution)]

    with torch.inference_mode():
        before = state()
        assert paged._steps.prewarm([StepShape(7, 3, 16), StepShape(2, 4, 8)]) == 2
        after = state()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    lane = engine.config.max_batch_size
    assert paged.attention.held_blocks(lane) == 0
    assert set(paged.attention._table[lane]) == {paged.attention.pool.scratch}
    assert paged.attention.pool.used_blocks == sum(paged.attention.held_blocks(slot) for slot in range(lane))
    for request_id in ids:
        engine.feed_chunk(request_id, [], is_last=True)
    drain(engine)
    assert_idle(engine)


def test_a_cohort_is_padded_to_the_next_width(captures: Captures) -> None:
    engine = captures.engine()
    assert runtime(engine)._widths == (1, 2, 4)
    for _ in range(3):
        engine.add_request(speech(30000))
    outputs = [output for output in drain(engine) if output.finished]
    alone = captures.engine().transcribe_outputs([speech(30000)])
    assert [output.tokens for output in outputs] == [alone[0].tokens] * 3


def test_one_length_of_history_needs_no_padded_widths(captures: Captures) -> None:
    engine = captures.engine(num_left_chunks=0, max_blocks_per_seq=2)
    model = engine._runner._model
    model.cache_spec = replace(model.cache_spec, trained_window=16)
    with torch.inference_mode():
        paged = PagedRuntime(model, engine.config)
    assert (paged._widths, paged._blocks) == ((1, 2, 3, 4), (2,))


def test_preferred_sizes_are_widths(captures: Captures) -> None:
    assert runtime(captures.engine(preferred_batch_size=(3,)))._widths == (1, 2, 3, 4)


def test_on_a_cpu_nothing_is_captured_nor_padded() -> None:
    engine = make_engine()
    assert runtime(engine)._widths == (1, 2, 3, 4) and runtime(engine)._blocks == tuple(range(1, 33))
    engine.transcribe_outputs([speech(30000)])
    assert set(counts(engine)) == {"disabled"}
    assert engine.metrics_snapshot().gauges["engine_streaming_graphs"] == 0
