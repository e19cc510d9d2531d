"""Convolution histories of streams against plain lists of frames."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.cache.attention_cache import AttentionCache, ChunkPlan
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.cache.history import HistoryPolicy
from oasr_backend.models.config import CacheSpec

CPU = torch.device("cpu")
LAYERS, DIM, SLOTS = 2, 3, 3


def make_plan(slots: list[int], frames: list[int], chunk: int, width: int) -> ChunkPlan:
    spec = CacheSpec(1, key_heads=1, value_heads=1, head_dim=1, bias_heads=1, convolution_history=0)
    attention = AttentionCache(spec, 64, HistoryPolicy(16, 8, False), SLOTS, CPU, torch.float32)
    for slot, count in zip(slots, frames, strict=True):
        assert attention.reserve(slot, 0, count, chunk, -1)
    return attention.plan(slots, [0] * len(slots), frames, chunk, -1, chunk, width, tuple(range(1, 9)))


def fresh() -> torch.Tensor:
    return torch.arange(LAYERS * DIM, dtype=torch.float32).view(LAYERS, DIM) + 0.5


@pytest.mark.parametrize("kernel", [1, 2, 8])
def test_a_new_stream_looks_back_on_fresh_frames(kernel: int) -> None:
    cache = ConvolutionCache(fresh(), kernel - 1, SLOTS)
    gated = torch.ones(1, 4, DIM)
    extended = cache.extend(1, make_plan([2], [4], 4, 1), gated)
    assert extended[0].tolist() == [fresh()[1].tolist()] * (kernel - 1) + gated[0].tolist()


def test_reset_forgets_the_last_stream() -> None:
    cache = ConvolutionCache(fresh(), 4, SLOTS)
    for layer in range(LAYERS):
        cache.extend(layer, make_plan([0, 1], [4, 4], 4, 2), torch.full((2, 4, DIM), 9.0))
    cache.reset(1)
    for layer in range(LAYERS):
        assert cache.read(1, layer).eq(fresh()[layer]).all()
        assert cache.read(0, layer).eq(9.0).all()


@given(st.data(), st.integers(1, 9), st.integers(1, 6), st.booleans())
def test_history_is_the_last_valid_frames(data: Any, kernel: int, chunk: int, pad: bool) -> None:
    """Short rows, rows that sit out a step, and the padding lane leave everyone's history right."""
    cache = ConvolutionCache(fresh(), kernel - 1, SLOTS)
    history = {slot: fresh()[:, None].expand(-1, kernel - 1, -1).clone() for slot in range(SLOTS)}
    value = 0.0
    for _ in range(6):
        slots = data.draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, unique=True))
        frames = [data.draw(st.integers(0, chunk)) for _ in slots]
        width = SLOTS + 2 if pad else len(slots)
        plan = make_plan(slots, frames, chunk, width)
        for layer in range(LAYERS):
            gated = torch.arange(width * chunk * DIM, dtype=torch.float32).view(width, chunk, DIM) + value
            value += 1000
            extended = cache.extend(layer, plan, gated)
            assert extended.shape == (width, kernel - 1 + chunk, DIM)
            for row, (slot, count) in enumerate(zip(slots, frames, strict=True)):
                whole = torch.cat((history[slot][layer], gated[row, :count]))
                assert extended[row, : kernel - 1 + count].equal(whole)
                history[slot][layer] = whole[count:]
        for slot in range(SLOTS):
            for layer in range(LAYERS):
                assert cache.read(slot, layer).equal(history[slot][layer])
