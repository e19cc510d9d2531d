"""Paged keys and values of all streams, mapped frame by frame."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oasr_backend.cache.block_pool import BlockPool
from oasr_backend.cache.history import HistoryPolicy
from oasr_backend.cache.page_store import History, PageStore
from oasr_backend.cache.spans import Span, reads_in_place, spans
from oasr_backend.graphs.ladder import pick
from oasr_backend.graphs.streaming import StepShape
from oasr_backend.layers.attention import MASKED
from oasr_backend.models.config import CacheSpec
from oasr_backend.utils.staging import to_device


@dataclass(frozen=True)
class ChunkPlan:
    """Index tensors of one batched step; rows at and past the active streams are the padding lane."""

    slots: Tensor
    """[W] int64: row of the convolution history."""
    positions: Tensor
    """[W, n] int64: absolute frame of each new frame."""
    frames: Tensor
    """[W] int64: valid new frames."""
    write_rows: Tensor
    """[W * n] int64: row of the flat pool that each new frame is written to."""
    pages: Tensor
    """[W * P] int64: blocks that each row reads, in time order."""
    mask: Tensor | None
    """[W, 1, 1, P * block] float32: 0 where the row may look, MASKED elsewhere; None where there are spans."""
    full: bool
    """Whether every row is known to have all n frames."""
    spans: tuple[tuple[Span, ...], ...] | None = None
    """Where each row's visible frames lie, when they are to be read there and `pages` is not."""


class AttentionCache:
    """The pool, its block table, and the account of which stream holds what.

    A frame at absolute position t of a stream lies in row `table[slot, (t - base) // block] * block + t % block`;
    `base` is where the stream's oldest block starts.
    """

    def __init__(
        self,
        spec: CacheSpec,
        num_blocks: int,
        policy: HistoryPolicy,
        slots: int,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self.policy = policy
        self.pool = BlockPool(num_blocks)
        self._device = device
        self._store = PageStore(spec, num_blocks + 1, policy.block_size, device, dtype)
        # Row `slots` is the padding lane: it reads and writes the scratch block only.
        self._table = np.full((slots + 1, policy.max_blocks), self.pool.scratch, dtype=np.int64)
        self._held = np.zeros(slots + 1, dtype=np.int64)
        self._base = np.zeros(slots + 1, dtype=np.int64)

    def held_blocks(self, slot: int) -> int:
        return int(self._held[slot])

    def free(self, slot: int) -> None:
        """Returns all blocks of a slot to the pool."""
        held = int(self._held[slot])
        self.pool.free(self._table[slot, :held].tolist())
        self._table[slot] = self.pool.scratch
        self._held[slot] = 0
        self._base[slot] = 0

    def reserve(self, slot: int, offset: int, frames: int, chunk: int, left_chunks: int) -> bool:
        """Makes room for a chunk, dropping what is no longer seen; False when the stream is at its ceiling."""
        held, base = int(self._held[slot]), int(self._base[slot])
        drop = self.policy.droppable(base, held, offset, frames, chunk, left_chunks)
        if not self.policy.fits(base, drop, offset, frames):
            return False
        row = self._table[slot]
        if drop:
            self.pool.free(row[:drop].tolist())
            row[: held - drop] = row[drop:held]
            row[held - drop : held] = self.pool.scratch
            held -= drop
            base += drop * self.policy.block_size
            # Settled before anything is allocated, which may fail.
            self._held[slot], self._base[slot] = held, base
        missing = -(-(offset + frames - base) // self.policy.block_size) - held
        if missing > 0:
            row[held : held + missing] = self.pool.allocate(missing, self._home(slot, base, held, missing))
            self._held[slot] = held + missing
        return True

    def _home(self, slot: int, base: int, held: int, count: int) -> list[int]:
        """Blocks in a row for a stream's next `count`: a ring of its own share, so that its pages are neighbours."""
        first, share = base // self.policy.block_size + held, self.policy.max_blocks
        return [slot * share + (first + index) % share for index in range(count)]

    def plan(
        self,
        slots: Sequence[int],
        offsets: Sequence[int],
        frames: Sequence[int],
        chunk: int,
        left_chunks: int,
        new_frames: int,
        width: int,
        block_ladder: tuple[int, ...],
    ) -> ChunkPlan:
        """Index tensors for one forward of `width` rows; room must have been reserved.

        `new_frames` is the padded number of new frames a row; the number of blocks read is a rung of `block_ladder`.
        """
        is_full = all(count == new_frames for count in frames)
        shape = self.shape(slots, new_frames, width, block_ladder, is_full)
        indices = self.indices(slots, offsets, frames, chunk, left_chunks, shape)
        return self.unpacked(to_device(indices, self._device), shape)

    def shape(
        self, slots: Sequence[int], new_frames: int, width: int, block_ladder: tuple[int, ...], is_full: bool
    ) -> StepShape:
        """The shape of a step of `slots`: as many blocks as the longest of them holds, to the next rung."""
        held = max([1, *self._held[list(slots)].tolist()])
        return StepShape(pick(block_ladder, held), width, new_frames, is_full)

    def indices(
        self,
        slots: Sequence[int],
        offsets: Sequence[int],
        frames: Sequence[int],
        chunk: int,
        left_chunks: int,
        shape: StepShape,
    ) -> np.ndarray:
        """All that a step must know of its rows, in one array [N] int64 that `unpacked` takes apart."""
        block, width, blocks = self.policy.block_size, shape.width, shape.blocks
        lanes = width - len(slots)
        slot = np.array([*slots, *[len(self._held) - 1] * lanes], dtype=np.int64)
        offset = np.array([*offsets, *[0] * lanes], dtype=np.int64)
        valid = np.array([*frames, *[0] * lanes], dtype=np.int64)
        table, start = self._table[slot], offset - self._base[slot]

        step = np.arange(shape.new_frames, dtype=np.int64)
        local = start[:, None] + step
        page = np.take_along_axis(table, np.minimum(local // block, self.policy.max_blocks - 1), axis=1)
        write_rows = np.where(step < valid[:, None], page, self.pool.scratch) * block + local % block

        pages = table[:, :blocks]
        if blocks > self.policy.max_blocks:
            pages = np.pad(pages, ((0, 0), (0, blocks - self.policy.max_blocks)), constant_values=self.pool.scratch)
        first = start - left_chunks * chunk if left_chunks >= 0 else np.zeros_like(start)
        parts = (slot, offset, valid, first, start + valid, write_rows.reshape(-1), pages.reshape(-1))
        return np.concatenate(parts)

    def idle(self, shape: StepShape) -> np.ndarray:
        """`indices` of a step in which every row is the padding lane."""
        return self.indices((), (), (), 1, 0, shape)

    def unpacked(self, indices: Tensor, shape: StepShape, may_read_in_place: bool = False) -> ChunkPlan:
        """`indices` [N] on the device as a plan: the same device work whatever they hold.

        With `may_read_in_place`, which is for CPU steps that are not captured, the work depends on them: histories are
        read where they lie when that costs less than to gather them.
        """
        slots, offset, frames, first, end, write_rows, pages = indices.split(_sizes(shape))
        found = self._spans(first, end, pages, shape) if may_read_in_place else None
        return ChunkPlan(
            slots=slots,
            positions=offset[:, None] + torch.arange(shape.new_frames, device=indices.device),
            frames=frames,
            write_rows=write_rows,
            pages=pages,
            mask=self._mask(first, end, shape) if found is None else None,
            full=shape.is_full,
            spans=found,
        )

    def _mask(self, first: Tensor, end: Tensor, shape: StepShape) -> Tensor:
        # How far a key lies outside of what its row sees, not above 0 inside; exact below 2^24 frames.
        key = torch.arange(shape.blocks * self.policy.block_size, dtype=torch.float32, device=first.device)
        outside = torch.maximum(first.float()[:, None] - key, key - (end - 1).float()[:, None])
        return outside.mul_(MASKED).clamp_(MASKED, 0.0)[:, None, None, :]

    def _spans(
        self, first: Tensor, end: Tensor, pages: Tensor, shape: StepShape
    ) -> tuple[tuple[Span, ...], ...] | None:
        block = self.policy.block_size
        seen = [(max(0, low), high) for low, high in zip(first.tolist(), end.tolist(), strict=True)]
        if not reads_in_place([high - low for low, high in seen], shape.blocks * block):
            return None
        rows = pages.view(shape.width, shape.blocks).tolist()
        return tuple(spans(row, low, high, block) for row, (low, high) in zip(rows, seen, strict=True))

    def write(self, layer: int, plan: ChunkPlan, key: Tensor, value: Tensor, key_bias: Tensor | None) -> None:
        """Keeps the new frames of a step: `key`, `value` [W, n, heads, d], `key_bias` [W, n, heads] or None."""
        self._store.write(layer, plan.write_rows, key, value, key_bias)

    def gathered(self, layer: int, plan: ChunkPlan) -> tuple[Tensor, Tensor, Tensor]:
        """What the rows of a step read, to one length, of a plan without spans.

        Keys and values [W, P * block, heads, d] and the additive bias [W, heads or 1, 1, P * block] float32.
        """
        assert plan.mask is not None
        keys, values, bias = self._store.gathered(layer, plan.pages, len(plan.slots))
        return keys, values, plan.mask if bias is None else bias + plan.mask

    def in_place(self, layer: int, plan: ChunkPlan) -> Iterator[History]:
        """What each row of a step sees and no more, of a plan that has spans."""
        assert plan.spans is not None
        for runs in plan.spans:
            yield self._store.in_place(layer, runs)

    def read(self, slot: int, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """What a stream holds of a layer, oldest block first: keys, values [frames, heads, d], bias [frames, heads]."""
        pages = to_device(self._table[slot, : self._held[slot]], self._device)
        keys, values, bias = self._store.gathered(layer, pages, 1)
        frames = keys.shape[1]
        return keys[0], values[0], keys.new_zeros(frames, 0) if bias is None else bias[0, :, 0].transpose(0, 1)


def _sizes(shape: StepShape) -> list[int]:
    """Of slots, offsets, valid frames, first visible key, key behind the last, rows to write, pages to read."""
    width = shape.width
    return [width, width, width, width, width, width * shape.new_frames, width * shape.blocks]
