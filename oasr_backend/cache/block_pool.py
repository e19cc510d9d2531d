"""The free list of the paged cache."""

from collections.abc import Iterable


class BlockPool:
    """Hands out block ids 0 .. num_blocks - 1; the scratch block `num_blocks` lies outside it."""

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        # Last freed, first used: memory is touched only as far as it was ever needed at once.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._is_free = [True] * num_blocks

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

    def allocate(self, count: int) -> list[int]:
        """Raises RuntimeError when fewer than `count` blocks are free; nothing is taken then."""
        if count > len(self._free):
            raise RuntimeError(
                f"the cache has {len(self._free)} of {self.num_blocks} blocks free and {count} are needed; "
                "raise max_num_blocks or lower max_batch_size or num_left_chunks"
            )
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._is_free[block] = False
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Raises ValueError for a block that is not of this pool or that is free already."""
        for block in blocks:
            if not 0 <= block < self.num_blocks:
                raise ValueError(f"block {block} is not one of the pool's {self.num_blocks}")
            if self._is_free[block]:
                raise ValueError(f"block {block} is freed twice")
            self._is_free[block] = True
            self._free.append(block)
