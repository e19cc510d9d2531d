"""The budget of graphs, and the replay that stands in for a device."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oasr_backend.graphs.cache import Captured, GraphCache, StaticBuffer
from oasr_backend.graphs.capture import CaptureBackend
from oasr_backend.graphs.replay import ReplayCapture

CPU = torch.device("cpu")


def doubling(backend: CaptureBackend) -> Captured[Tensor]:
    inputs = torch.zeros(3)
    return Captured(backend.capture(lambda: inputs * 2, (inputs,)), inputs)


def failing(error: Exception) -> Callable[[CaptureBackend], Captured[Tensor]]:
    def make(backend: CaptureBackend) -> Captured[Tensor]:
        raise error

    return make


def test_a_graph_is_made_once_and_replayed() -> None:
    cache: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 2)
    assert cache.find("a", doubling) is cache.find("a", doubling)
    assert cache.take_counts() == {"captured": 1, "replayed": 1}
    assert cache.take_counts() == {}
    assert len(cache) == 1 and "a" in cache and "b" not in cache


def test_what_is_made_ahead_of_need_counts_as_no_step() -> None:
    cache: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 1)
    assert cache.add("a", doubling) and cache.add("a", doubling) and not cache.add("b", doubling)
    assert cache.take_counts() == {}


def test_past_the_budget_there_is_none() -> None:
    cache: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 1)
    cache.find("a", doubling)
    assert cache.find("b", doubling) is None and cache.find("a", doubling) is not None
    assert cache.take_counts() == {"captured": 1, "saturated": 1, "replayed": 1}


def test_a_failed_shape_is_remembered_and_costs_no_place() -> None:
    cache: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 1)
    assert cache.find("a", failing(RuntimeError("no"))) is None
    assert cache.find("a", doubling) is None
    assert cache.find("b", doubling) is not None
    assert cache.take_counts() == {"failed": 2, "captured": 1}


def test_without_memory_no_more_are_made_and_those_there_are_stay() -> None:
    cache: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 9)
    cache.find("a", doubling)
    assert cache.find("b", failing(torch.OutOfMemoryError("full"))) is None
    assert cache.find("c", doubling) is None and cache.find("a", doubling) is not None
    assert cache.take_counts() == {"captured": 1, "failed": 2, "replayed": 1}


def test_off_and_unsupported_are_told_apart() -> None:
    off: GraphCache[str, Tensor] = GraphCache(None, 9)
    assert off.find("a", doubling) is None
    assert off.take_counts() == {"disabled": 1}
    foreign: GraphCache[str, Tensor] = GraphCache(ReplayCapture(CPU), 9, is_supported=False)
    assert foreign.find("a", doubling) is None
    assert foreign.take_counts() == {"unsupported": 1}


def test_an_input_that_is_not_filled_again_shows() -> None:
    captured = doubling(ReplayCapture(CPU))
    captured.inputs.fill_(3.0)
    assert captured.graph.replay().tolist() == [6.0] * 3
    assert captured.graph.replay().isnan().all()


def test_an_index_that_is_not_filled_again_shows() -> None:
    table, index = torch.arange(4.0), torch.zeros(2, dtype=torch.int64)
    graph = ReplayCapture(CPU).capture(lambda: table.index_select(0, index), (index,))
    with pytest.raises(IndexError):
        graph.replay()


def test_an_output_that_is_not_copied_shows() -> None:
    backend = ReplayCapture(CPU)
    first, second = doubling(backend), doubling(backend)
    first.inputs.fill_(1.0)
    kept = first.graph.replay()
    second.inputs.fill_(1.0)
    second.graph.replay()
    assert kept.isnan().all()


def test_views_of_a_static_buffer_lie_on_each_other() -> None:
    buffer = StaticBuffer(torch.float32, CPU)
    large = buffer.view(4, 8)
    small = buffer.view(2, 8)
    assert small.data_ptr() == large.data_ptr() == buffer.view(4, 8).data_ptr()
    larger = buffer.view(5, 8)
    assert larger.data_ptr() != large.data_ptr()
    large.fill_(1.0)
    assert large.sum() == 32
