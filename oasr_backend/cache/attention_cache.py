"""Paged keys and values of all streams, mapped frame by frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oasr_backend.cache.block_pool import BlockPool
from oasr_backend.cache.history import HistoryPolicy
from oasr_backend.graphs.ladder import pick
from oasr_backend.graphs.streaming import StepShape
from oasr_backend.layers.attention import MASKED
from oasr_backend.models.config import CacheSpec
from oasr_backend.utils.buffers import lazy_zeros
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
    mask: Tensor
    """[W, 1, 1, P * block] float32: 0 where the row may look, MASKED elsewhere."""
    full: bool
    """Whether every row is known to have all n frames."""


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
        shape = (spec.layers, num_blocks + 1, policy.block_size)
        self._keys = lazy_zeros(*shape, spec.key_heads, spec.head_dim, dtype=dtype, device=device)
        self._values = lazy_zeros(*shape, spec.value_heads, spec.head_dim, dtype=dtype, device=device)
        self._bias = lazy_zeros(*shape, spec.bias_heads, dtype=torch.float32, device=device)
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
            row[held : held + missing] = self.pool.allocate(missing)
            self._held[slot] = held + missing
        return True

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

    def unpacked(self, indices: Tensor, shape: StepShape) -> ChunkPlan:
        """`indices` [N] on the device as a plan: the same device work whatever they hold."""
        slots, offset, frames, first, end, write_rows, pages = indices.split(_sizes(shape))
        # How far a key lies outside of what its row sees, not above 0 inside; exact below 2^24 frames.
        key = torch.arange(shape.blocks * self.policy.block_size, dtype=torch.float32, device=indices.device)
        outside = torch.maximum(first.float()[:, None] - key, key - (end - 1).float()[:, None])
        return ChunkPlan(
            slots=slots,
            positions=offset[:, None] + torch.arange(shape.new_frames, device=indices.device),
            frames=frames,
            write_rows=write_rows,
            pages=pages,
            mask=outside.mul_(MASKED).clamp_(MASKED, 0.0)[:, None, None, :],
            full=shape.is_full,
        )

    def attend_inputs(
        self, layer: int, plan: ChunkPlan, key: Tensor, value: Tensor, key_bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Writes new frames and gathers what each row reads.

        `key`, `value` [W, n, heads, d], `key_bias` [W, n, heads] or None -> keys and values [W, P * block, heads, d]
        and the additive bias [W, heads or 1, 1, P * block] float32.
        """
        keys = self._write_and_gather(self._keys[layer], plan, key)
        values = self._write_and_gather(self._values[layer], plan, value)
        if key_bias is None:
            return keys, values, plan.mask
        bias = self._write_and_gather(self._bias[layer], plan, key_bias)
        return keys, values, bias.transpose(1, 2)[:, :, None, :] + plan.mask

    @staticmethod
    def _write_and_gather(pool: Tensor, plan: ChunkPlan, new: Tensor) -> Tensor:
        pool.flatten(0, 1).index_copy_(0, plan.write_rows, new.flatten(0, 1).to(pool.dtype))
        return pool.index_select(0, plan.pages).view(new.shape[0], -1, *pool.shape[2:])

    def read(self, slot: int, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """What a stream holds of a layer, oldest block first: keys, values [frames, heads, d], bias [frames, heads]."""
        pages = to_device(self._table[slot, : self._held[slot]], self._device)
        keys, values, bias = (
            pool[layer].index_select(0, pages).flatten(0, 1) for pool in (self._keys, self._values, self._bias)
        )
        return keys, values, bias


def _sizes(shape: StepShape) -> list[int]:
    """Of slots, offsets, valid frames, first visible key, key behind the last, rows to write, pages to read."""
    width = shape.width
    return [width, width, width, width, width, width * shape.new_frames, width * shape.blocks]
