"""The free list of the paged cache."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oasr_backend.cache.block_pool import BlockPool


def test_every_block_is_handed_out_once() -> None:
    pool = BlockPool(5)
    assert sorted(pool.allocate(2) + pool.allocate(3)) == [0, 1, 2, 3, 4]
    assert (pool.free_blocks, pool.used_blocks) == (0, 5)


def test_too_many_are_refused_with_the_numbers_and_nothing_is_taken() -> None:
    pool = BlockPool(4)
    pool.allocate(3)
    with pytest.raises(RuntimeError, match=r"1 of 4 blocks free and 2 are needed"):
        pool.allocate(2)
    assert pool.free_blocks == 1
    assert len(pool.allocate(1)) == 1


def test_wanted_blocks_are_taken_where_they_are_free() -> None:
    pool = BlockPool(6)
    assert pool.allocate(2, [4, 5]) == [4, 5]
    (other,) = pool.allocate(1, [5])
    assert other not in (4, 5)
    # Ids outside of the pool are nobody's.
    assert set(pool.allocate(2, [6, 99])) < {0, 1, 2, 3}
    assert pool.free_blocks == 1


def test_freed_blocks_come_back() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    pool.free(blocks)
    assert pool.free_blocks == 3
    assert sorted(pool.allocate(3)) == [0, 1, 2]


def test_a_block_cannot_be_freed_twice() -> None:
    pool = BlockPool(3)
    (block,) = pool.allocate(1)
    pool.free([block])
    with pytest.raises(ValueError, match="twice"):
        pool.free([block])
    assert pool.free_blocks == 3


@pytest.mark.parametrize("foreign", [-1, 3, 99])
def test_a_block_of_no_pool_cannot_be_freed(foreign: int) -> None:
    pool = BlockPool(3)
    pool.allocate(3)
    with pytest.raises(ValueError, match="not one of"):
        pool.free([foreign])
    assert pool.free_blocks == 0


def test_the_scratch_block_belongs_to_nobody() -> None:
    pool = BlockPool(3)
    assert pool.scratch not in pool.allocate(3)
    with pytest.raises(ValueError, match="not one of"):
        pool.free([pool.scratch])


class AnyOrder(RuleBasedStateMachine):
    """Against a set of taken blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(7)
        self.taken: set[int] = set()

    @rule(count=st.integers(0, 9))
    def allocate(self, count: int) -> None:
        if count > 7 - len(self.taken):
            with pytest.raises(RuntimeError):
                self.pool.allocate(count)
            return
        blocks = self.pool.allocate(count)
        assert len(blocks) == count and not self.taken & set(blocks)
        self.taken |= set(blocks)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        blocks = data.draw(st.sets(st.sampled_from(sorted(self.taken)), min_size=1))
        self.pool.free(blocks)
        self.taken -= blocks

    @rule(block=st.integers(-2, 9))
    def free_what_is_not_taken(self, block: int) -> None:
        if block not in self.taken:
            with pytest.raises(ValueError):
                self.pool.free([block])

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.used_blocks == len(self.taken)
        assert self.pool.free_blocks == 7 - len(self.taken)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30, stateful_step_count=20)
