"""The paged cache against a plain list of every frame a stream ever wrote."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.cache.attention_cache import AttentionCache, ChunkPlan
from oasr_backend.cache.history import HistoryPolicy, bounded_blocks
from oasr_backend.cache.spans import spans
from oasr_backend.layers.attention import MASKED
from oasr_backend.models.config import CacheSpec

CPU = torch.device("cpu")
LAYERS, HEADS = 2, 2
SPEC = CacheSpec(LAYERS, key_heads=HEADS, value_heads=HEADS, head_dim=1, bias_heads=HEADS, convolution_history=0)


def make_cache(
    slots: int, block: int, max_blocks: int, recycle: bool = False, num_blocks: int | None = None
) -> AttentionCache:
    blocks = slots * max_blocks if num_blocks is None else num_blocks
    policy = HistoryPolicy(block, max_blocks, recycle)
    return AttentionCache(SPEC, blocks, policy, slots, CPU, torch.float32)


@dataclass
class Stream:
    """What a stream wrote, as one number a frame that nobody else writes."""

    slot: int
    serial: int
    written: list[float] = field(default_factory=list)

    @property
    def offset(self) -> int:
        return len(self.written)

    def frames(self, count: int) -> list[float]:
        return [self.serial * 10_000 + self.offset + index for index in range(count)]


def forward(
    cache: AttentionCache,
    streams: list[Stream],
    counts: list[int],
    chunk: int,
    left: int,
    width: int | None = None,
    ladder: tuple[int, ...] | None = None,
) -> list[list[float]]:
    """One step with room reserved: writes `counts` frames and returns what each row saw, in order."""
    width = width or len(streams)
    ladder = ladder or tuple(range(1, cache.policy.max_blocks + 1))
    plan = cache.plan([s.slot for s in streams], [s.offset for s in streams], counts, chunk, left, chunk, width, ladder)
    assert plan.full == all(count == chunk for count in counts)
    assert plan.slots.tolist() == [s.slot for s in streams] + [cache._table.shape[0] - 1] * (width - len(streams))
    new = np.full((width, chunk), -5.0, dtype=np.float32)
    for row, (stream, count) in enumerate(zip(streams, counts, strict=True)):
        new[row, :count] = stream.frames(count)
        assert plan.positions[row].tolist() == list(range(stream.offset, stream.offset + chunk))
    seen = []
    for layer in range(LAYERS):
        # A layer, a head and a kind of tensor each hold numbers of their own.
        bias = torch.from_numpy(new)[..., None] + torch.arange(HEADS) / 4 + layer * 100_000
        key = bias[..., None] + 0.125
        cache.write(layer, plan, key, -key, bias)
        keys, values, mixed = cache.gathered(layer, plan)
        assert mixed.dtype is torch.float32 and mixed.shape == (width, HEADS, 1, keys.shape[1])
        visible = plan.mask[:, 0, 0] == 0
        assert (plan.mask[:, 0, 0][~visible] == MASKED).all()
        assert keys.isfinite().all() and values.isfinite().all()
        for head in range(HEADS):
            for row in range(len(streams)):
                rows = keys[row, visible[row], head, 0] - 0.125 - head / 4 - layer * 100_000
                assert values[row, visible[row], head, 0].equal(-keys[row, visible[row], head, 0])
                assert mixed[row, head, 0, visible[row]].equal(keys[row, visible[row], head, 0] - 0.125)
                seen.append(rows.tolist())
        assert not visible[len(streams) :].any()
        check_in_place(cache, plan, layer, keys, values, mixed, visible, len(streams))
    for stream, count in zip(streams, counts, strict=True):
        stream.written += stream.frames(count)
    per_row = [seen[row :: len(streams)] for row in range(len(streams))]
    assert all(rows == views[0] for views in per_row for rows in views)
    return [views[0] for views in per_row]


def check_in_place(
    cache: AttentionCache,
    plan: ChunkPlan,
    layer: int,
    keys: torch.Tensor,
    values: torch.Tensor,
    mixed: torch.Tensor,
    visible: torch.Tensor,
    streams: int,
) -> None:
    """What lies in the spans is what the gathered rows show."""
    block = cache.policy.block_size
    pages = plan.pages.view(len(plan.slots), -1).tolist()
    for row in range(streams):
        shown = visible[row].nonzero().flatten().tolist()
        found = spans(pages[row], shown[0], shown[-1] + 1, block)
        (history,) = cache.in_place(layer, replace(plan, spans=(found,)))
        assert history[0].equal(keys[row : row + 1, visible[row]])
        assert history[1].equal(values[row : row + 1, visible[row]])
        assert history[2] is not None and history[2].equal(mixed[row : row + 1, ..., visible[row]])


@settings(max_examples=40)
@given(
    st.data(), st.integers(1, 9), st.integers(0, 4), st.integers(1, 9), st.integers(1, 3), st.booleans(), st.booleans()
)
def test_bounded_streams_see_exactly_their_history(
    data: Any, chunk: int, left: int, block: int, slots: int, pad: bool, coarse: bool
) -> None:
    """Joins, ends and short last chunks at random; smaller chunks than the pages were counted for included."""
    bound = bounded_blocks(chunk, left, block)
    cache = make_cache(slots, block, bound)
    chunk = data.draw(st.integers(1, chunk), label="chunk of these streams")
    ladder = (bound + 3,) if coarse else None
    live: dict[int, Stream] = {}
    for serial in range(1, 12):
        free = [slot for slot in range(slots) if slot not in live]
        if free and (not live or data.draw(st.booleans(), label="join")):
            live[free[0]] = Stream(free[0], serial)
        step = data.draw(st.lists(st.sampled_from(sorted(live)), min_size=1, unique=True), label="ready")
        streams = [live[slot] for slot in step]
        counts = [data.draw(st.integers(1, chunk)) if data.draw(st.booleans()) else chunk for _ in streams]
        for stream, count in zip(streams, counts, strict=True):
            assert cache.reserve(stream.slot, stream.offset, count, chunk, left)
            assert cache.held_blocks(stream.slot) <= math.ceil((left + 1) * chunk / block) + 1
        offsets = [stream.offset for stream in streams]
        views = forward(cache, streams, counts, chunk, left, slots + 2 if pad else None, ladder)
        for stream, offset, count, seen in zip(streams, offsets, counts, views, strict=True):
            assert seen == stream.written[max(0, offset - left * chunk) : offset + count]
            if count < chunk:
                cache.free(stream.slot)
                del live[stream.slot]
        held = sum(cache.held_blocks(slot) for slot in range(slots))
        assert cache.pool.used_blocks == held
        if not live:
            assert cache.pool.free_blocks == cache.pool.num_blocks
    for slot in live:
        cache.free(slot)
    assert cache.pool.free_blocks == cache.pool.num_blocks


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 8), st.booleans())
def test_unlimited_streams_see_all_until_the_ceiling(chunk: int, block: int, max_blocks: int, recycle: bool) -> None:
    cache = make_cache(1, block, max_blocks, recycle)
    stream = Stream(0, 1)
    for _ in range(20):
        end = stream.offset + chunk
        dropped = max(0, math.ceil(end / block) - max_blocks)
        held = cache.held_blocks(0)
        fits = cache.reserve(0, stream.offset, chunk, chunk, -1)
        if not recycle:
            assert fits == (dropped == 0)
        if not fits:
            assert not recycle or math.ceil((stream.offset % block + chunk) / block) > max_blocks
            assert cache.held_blocks(0) == held
            break
        (seen,) = forward(cache, [stream], [chunk], chunk, -1)
        assert seen == stream.written[dropped * block :]
        assert cache.held_blocks(0) <= max_blocks
    cache.free(0)
    assert cache.pool.free_blocks == cache.pool.num_blocks


def test_a_recycling_stream_never_ends_and_keeps_its_youngest_pages() -> None:
    cache = make_cache(1, block=4, max_blocks=3, recycle=True)
    stream = Stream(0, 1)
    for step in range(40):
        assert cache.reserve(0, stream.offset, 4, 4, -1)
        (seen,) = forward(cache, [stream], [4], 4, -1)
        assert seen == stream.written[max(0, step - 2) * 4 :]
        assert cache.held_blocks(0) == min(step + 1, 3)


def test_a_short_chunk_at_the_ceiling_overwrites_nothing() -> None:
    """Its padding would lie on a page that the stream cannot have."""
    cache = make_cache(1, block=4, max_blocks=2)
    stream = Stream(0, 1)
    assert cache.reserve(0, 0, 6, 6, -1)
    forward(cache, [stream], [6], 6, -1)
    assert cache.reserve(0, 6, 2, 6, -1)
    (seen,) = forward(cache, [stream], [2], 6, -1)
    assert seen == stream.written and len(seen) == 8


def test_a_full_stream_leaves_its_neighbours_their_share() -> None:
    cache = make_cache(2, block=4, max_blocks=2)
    first, second = Stream(0, 1), Stream(1, 2)
    for _ in range(2):
        assert cache.reserve(0, first.offset, 4, 4, -1)
        forward(cache, [first], [4], 4, -1)
    assert not cache.reserve(0, first.offset, 4, 4, -1)
    for _ in range(2):
        assert cache.reserve(1, second.offset, 4, 4, -1)
        forward(cache, [second], [4], 4, -1)


def test_a_freed_slot_starts_at_its_first_frame_again() -> None:
    cache = make_cache(1, block=4, max_blocks=8)
    old = Stream(0, 1)
    for _ in range(4):
        cache.reserve(0, old.offset, 4, 4, 1)
        forward(cache, [old], [4], 4, 1)
    cache.free(0)
    assert cache.held_blocks(0) == 0
    new = Stream(0, 2)
    assert cache.reserve(0, 0, 4, 4, -1)
    assert forward(cache, [new], [4], 4, -1) == [new.written]


def test_freeing_an_empty_slot_is_nothing() -> None:
    cache = make_cache(2, block=4, max_blocks=2)
    cache.free(1)
    assert cache.pool.free_blocks == 4


def test_the_padding_lane_touches_the_scratch_block_only() -> None:
    cache = make_cache(2, block=4, max_blocks=4)
    stream = Stream(0, 1)
    assert cache.reserve(0, 0, 4, 4, -1)
    plan = cache.plan([0], [0], [4], 4, -1, 4, 4, (1, 2, 3, 4))
    scratch = cache.pool.scratch
    assert set((plan.write_rows.view(4, 4)[1:] // 4).flatten().tolist()) == {scratch}
    assert set(plan.pages.view(4, -1)[1:].flatten().tolist()) == {scratch}
    held = cache.held_blocks(2)
    forward(cache, [stream], [4], 4, -1, width=4)
    assert cache.held_blocks(2) == held == 0
    assert scratch not in cache.pool.allocate(cache.pool.free_blocks)


def test_an_exhausted_pool_loses_no_page() -> None:
    """A pool smaller than what its streams may hold: the stream that finds none ends, and all comes back."""
    cache = make_cache(2, block=4, max_blocks=4, recycle=True, num_blocks=5)
    first, second = Stream(0, 1), Stream(1, 2)
    for _ in range(4):
        assert cache.reserve(0, first.offset, 4, 4, 2)
        forward(cache, [first], [4], 4, 2)
    for _ in range(2):
        assert cache.reserve(1, second.offset, 4, 4, -1)
        forward(cache, [second], [4], 4, -1)
    with pytest.raises(RuntimeError, match="1 of 5 blocks free and 2 are needed"):
        # A chunk that drops one page and needs two more.
        cache.reserve(0, first.offset, 8, 8, 1)
    cache.free(0)
    cache.free(1)
    assert cache.pool.free_blocks == 5


def test_read_returns_the_oldest_page_first() -> None:
    cache = make_cache(1, block=4, max_blocks=4)
    stream = Stream(0, 1)
    for _ in range(3):
        cache.reserve(0, stream.offset, 3, 3, -1)
        forward(cache, [stream], [3], 3, -1)
    keys, values, bias = cache.read(0, 1)
    assert keys.shape == values.shape == (12, HEADS, 1) and bias.shape == (12, HEADS)
    assert (bias[:9, 0] - 100_000).tolist() == stream.written


def test_pages_of_a_stream_are_neighbours_so_that_its_history_is_one_run() -> None:
    """Also of streams that grow in turns, and after others came and went."""
    cache = make_cache(3, block=4, max_blocks=6)
    streams = [Stream(slot, slot + 1) for slot in range(3)]
    for _ in range(2):
        for stream in streams:
            stream.written.clear()
        for _ in range(5):
            for stream in streams:
                assert cache.reserve(stream.slot, stream.offset, 4, 4, -1)
            plan = cache.plan([0, 1, 2], [s.offset for s in streams], [4] * 3, 4, -1, 4, 3, tuple(range(1, 7)))
            forward(cache, streams, [4] * 3, 4, -1)
        for row in plan.pages.view(3, -1).tolist():
            assert spans(row, 0, 20, 4) == ((row[0] * 4, row[0] * 4 + 20),)
        for stream in streams:
            cache.free(stream.slot)


def test_a_recycling_stream_goes_around_in_its_share() -> None:
    cache = make_cache(2, block=4, max_blocks=4, recycle=True)
    stream = Stream(1, 1)
    for _ in range(11):
        assert cache.reserve(1, stream.offset, 4, 4, -1)
        plan = cache.plan([1], [stream.offset], [4], 4, -1, 4, 1, (1, 2, 3, 4))
        forward(cache, [stream], [4], 4, -1)
        assert set(plan.pages.tolist()) <= {4, 5, 6, 7}
        assert len(spans(plan.pages.tolist(), 0, 4 * len(plan.pages), 4)) <= 2


def test_histories_are_read_in_place_only_where_the_step_may_look_at_its_inputs() -> None:
    cache = make_cache(1, block=4, max_blocks=4)
    cache.reserve(0, 0, 4, 4, -1)
    shape = cache.shape([0], 4, 1, (1, 2, 3, 4), True)
    indices = torch.from_numpy(cache.indices([0], [0], [4], 4, -1, shape))
    assert cache.unpacked(indices, shape).spans is None
    assert cache.unpacked(indices, shape, may_read_in_place=True).spans == (((0, 4),),)


def test_bytes_of_a_page() -> None:
    spec = CacheSpec(12, key_heads=4, value_heads=4, head_dim=64, bias_heads=4, convolution_history=7)
    # Keys and values in float16, and a float32 bias a head: 195 KiB for the default model.
    assert spec.bytes_per_block(16, 2) == 2 * 12 * 16 * 4 * 64 * 2 + 4 * 12 * 16 * 4 == 195 * 1024
