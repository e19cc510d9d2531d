"""The free list of the paged cache."""

from collections.abc import Iterable
from itertools import chain, repeat


class BlockPool:
    """Hands out block ids 0 .. num_blocks - 1; the scratch block `num_blocks` lies outside it."""

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        # Last freed, first used: memory is touched only as far as it was ever needed at once.
        self._free = dict.fromkeys(range(num_blocks - 1, -1, -1))

    @property
    def scratch(self) -> int:
        """A block that belongs to nobody: padding is written there."""
        return self.num_blocks

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    def allocate(self, count: int, wanted: Iterable[int] = ()) -> list[int]:
        """Those of the first `count` `wanted` that are free, and any others for the rest.

        Raises RuntimeError when fewer than `count` blocks are free; nothing is taken then.
        """
        if count > len(self._free):
            raise RuntimeError(
                f"the cache has {len(self._free)} of {self.num_blocks} blocks free and {count} are needed; "
                "raise max_num_blocks or lower max_batch_size or num_left_chunks"
            )
        blocks = []
        for _, block in zip(range(count), chain(wanted, repeat(None)), strict=False):
            if block in self._free:
                del self._free[block]
            else:
                block, _ = self._free.popitem()
            blocks.append(block)
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Raises ValueError for a block that is not of this pool or that is free already."""
        for block in blocks:
            if not 0 <= block < self.num_blocks:
                raise ValueError(f"block {block} is not one of the pool's {self.num_blocks}")
            if block in self._free:
                raise ValueError(f"block {block} is freed twice")
            self._free[block] = None
