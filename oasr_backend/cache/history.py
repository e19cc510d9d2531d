"""How much history a stream keeps, as pure arithmetic."""

from dataclasses import dataclass

UNLIMITED = -1


def blocks_for(frames: int, block_size: int) -> int:
    """Blocks that `frames` frames fill, the last one perhaps in part."""
    return -(-frames // block_size)


def bounded_blocks(chunk: int, left_chunks: int, block_size: int) -> int:
    """Most blocks a stream of bounded history holds: its visible frames may straddle one block more."""
    return blocks_for((left_chunks + 1) * chunk, block_size) + 1


def window_blocks(window: int, chunk: int) -> int:
    """Most blocks of `chunk` frames that `window` frames of history and a chunk hold: chunks start where blocks do."""
    return blocks_for(window, chunk) + 1


@dataclass(frozen=True)
class HistoryPolicy:
    """What a stream may keep: `left_chunks` chunks (all when negative), at most `max_blocks` blocks."""

    block_size: int
    max_blocks: int
    recycle: bool

    def visible_from(self, offset: int, chunk: int, left_chunks: int) -> int:
        """First absolute frame that a chunk at `offset` sees."""
        return 0 if left_chunks < 0 else max(0, offset - left_chunks * chunk)

    def droppable(self, base: int, held: int, offset: int, frames: int, chunk: int, left_chunks: int) -> int:
        """Blocks to drop from the front before a chunk of `frames` frames at `offset` is written.

        `base` is the absolute frame at which the first of the `held` blocks starts. Blocks wholly before what the
        chunk sees go; with `recycle` so do the oldest ones past `max_blocks`.
        """
        unseen = (self.visible_from(offset, chunk, left_chunks) - base) // self.block_size
        drop = min(held, max(0, unseen))
        if self.recycle:
            needed = blocks_for(offset + frames - base, self.block_size)
            drop = max(drop, min(held, needed - self.max_blocks))
        return drop

    def fits(self, base: int, dropped: int, offset: int, frames: int) -> bool:
        """Whether the chunk fits into `max_blocks` after dropping."""
        return blocks_for(offset + frames - base - dropped * self.block_size, self.block_size) <= self.max_blocks
