"""Slots of streams."""

import pytest

from oasr_backend.cache.slots import SlotPool


def test_every_slot_is_taken_once_and_can_be_taken_again() -> None:
    pool = SlotPool(3)
    assert sorted(pool.take() for _ in range(3)) == [0, 1, 2]
    assert pool.free_slots == 0
    pool.give_back(1)
    assert pool.take() == 1


def test_no_slot_is_left() -> None:
    pool = SlotPool(1)
    pool.take()
    with pytest.raises(RuntimeError, match="all 1 slots"):
        pool.take()


@pytest.mark.parametrize("slot", [0, 7, -1])
def test_a_slot_that_is_not_taken_cannot_be_given_back(slot: int) -> None:
    pool = SlotPool(2)
    with pytest.raises(ValueError, match="not taken"):
        pool.give_back(slot)
    assert pool.free_slots == 2
