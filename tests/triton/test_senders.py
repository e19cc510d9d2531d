"""Responses go out in order per key, and keys take turns."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.triton.senders import SenderPool

PATIENCE_S = 60.0


def test_sends_of_one_key_keep_their_order_and_a_failing_one_ends_nothing() -> None:
    pool = SenderPool(3)
    sent: list[int] = []

    def fail() -> None:
        raise ConnectionError("gone")

    for index in range(100):
        pool.send(7, lambda index=index: sent.append(index))
        pool.send(7, fail)
    pool.stop()
    assert sent == list(range(100))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_thousand_answers_of_one_stream_delay_another_by_one_turn(threads: int) -> None:
    pool = SenderPool(threads)
    gate = threading.Event()
    sent: list[str] = []
    for key in range(threads):
        # Every thread is at work while the others' answers are queued.
        pool.send(100 + key, lambda: gate.wait(PATIENCE_S))
    for _ in range(1000):
        pool.send(1, lambda: sent.append("flood"))
    for index in range(3):
        pool.send(2, lambda index=index: sent.append(f"paced {index}"))
    gate.set()
    pool.stop(PATIENCE_S)
    assert len(sent) == 1003
    assert [one for one in sent if one != "flood"] == ["paced 0", "paced 1", "paced 2"]
    # Threads may be held up between taking a job and noting it, which moves a place by little.
    assert sent.index("paced 2") < 100


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=200), st.integers(1, 4))
def test_every_send_happens_once_in_the_order_of_its_key(keys: list[int], threads: int) -> None:
    pool = SenderPool(threads)
    sent: list[tuple[int, int]] = []
    for number, key in enumerate(keys):
        pool.send(key, lambda one=(key, number): sent.append(one))
    pool.stop(PATIENCE_S)
    assert sorted(sent, key=lambda one: one[1]) == [(key, number) for number, key in enumerate(keys)]
    for key in set(keys):
        numbers = [number for own, number in sent if own == key]
        assert numbers == sorted(numbers)


def test_a_stop_sends_what_is_queued_first() -> None:
    pool = SenderPool(2)
    sent: list[int] = []
    for number in range(500):
        pool.send(number % 3, lambda number=number: sent.append(number))
    pool.stop(PATIENCE_S)
    assert sorted(sent) == list(range(500))
