"""Processes that take turns."""

import pytest

from benchmarks.workers import Worker, all_at_once


class Counter:
    """Counts up from a number."""

    def __init__(self, first: int):
        self._count = first

    def add(self, number: int) -> int:
        if number < 0:
            raise ValueError("it only counts up")
        self._count += number
        return self._count


def test_a_worker_keeps_its_object_between_calls() -> None:
    with Worker(Counter, 5) as one, Worker(Counter, 7) as other:
        assert one.call("add", 1) == 6
        assert all_at_once([one, other], "add", 2) == [8, 9]


def test_what_fails_in_a_worker_is_said_by_its_owner() -> None:
    with Worker(Counter, 5) as one, pytest.raises(RuntimeError, match="it only counts up"):
        one.call("add", -1)
