"""Clips shared out over servers."""

import threading
from collections import Counter

import pytest

from oasr_client import errors
from oasr_client.fleet import Fleet, rest_s

DOWN = errors.ServerUnreachable("down", status="UNAVAILABLE")


def outcomes(fleet: Fleet[str], work, count: int) -> dict[int, object]:
    found = dict(fleet.spread(range(count), work))
    assert sorted(found) == list(range(count))
    return found


def test_every_item_is_done_once_and_by_all_servers() -> None:
    served, lock = Counter[str](), threading.Lock()
    meeting = threading.Barrier(3)

    def work(server: str, item: int) -> int:
        if item < 3:
            meeting.wait(60)
        with lock:
            served[server] += 1
        return item * item

    found = outcomes(Fleet(("a", "b", "c"), concurrency=1), work, 60)
    assert found == {item: item * item for item in range(60)}
    assert sum(served.values()) == 60
    assert set(served) == {"a", "b", "c"}


def test_a_server_that_is_down_is_left_alone_and_loses_nothing() -> None:
    asked = Counter[str]()

    def work(server: str, item: int) -> str:
        asked[server] += 1
        if server == "down":
            raise DOWN
        return server

    found = outcomes(Fleet(("down", "up"), concurrency=4), work, 200)
    assert set(found.values()) == {"up"}
    # Each of its threads may have begun before the first failure was known.
    assert asked["down"] <= 8


def test_a_server_that_comes_back_is_used_again() -> None:
    asked = Counter[str]()
    back = threading.Event()

    def work(server: str, item: int) -> str:
        asked[server] += 1
        if server == "a":
            if asked["a"] == 1:
                raise DOWN
            back.set()
        else:
            assert back.wait(60)
        return server

    found = outcomes(Fleet(("a", "b"), concurrency=1), work, 12)
    assert set(found.values()) == {"a", "b"}


def test_without_room_anywhere_an_item_is_given_up_after_a_while() -> None:
    full = errors.ServerUnavailable("full", code="SERVER_FULL")
    tries = Counter[int]()

    def work(server: str, item: int) -> None:
        tries[item] += 1
        raise full

    found = outcomes(Fleet(("a", "b"), concurrency=2, patience_s=1.0), work, 3)
    assert set(found.values()) == {full}
    assert max(tries.values()) > 1


def test_servers_that_go_away_are_waited_for_and_those_that_never_were_are_not() -> None:
    tries = Counter[int]()

    def work(server: str, item: int) -> int:
        tries[item] += 1
        if item and tries[item] < 3:
            raise DOWN
        return item

    assert outcomes(Fleet(("a",), concurrency=1), work, 2) == {0: 0, 1: 1}

    def nobody(server: str, item: int) -> int:
        raise DOWN

    fleet = Fleet(("a", "b"), patience_s=1e9)
    assert set(outcomes(fleet, nobody, 5).values()) == {DOWN}


def test_an_item_at_which_servers_fail_does_not_go_round_for_ever() -> None:
    failed = errors.ServerError("CLIP_FAILED", code="CLIP_FAILED", status="INTERNAL")
    tries = Counter[int]()

    def work(server: str, item: int) -> int:
        tries[item] += 1
        if item == 5:
            raise failed
        return item

    found = outcomes(Fleet(("a", "b"), concurrency=2, most_tries=3), work, 20)
    assert found.pop(5) is failed
    assert found == {item: item for item in range(20) if item != 5}
    assert tries[5] == 3
    assert set(tries.values()) == {1, 3}


def test_what_is_wrong_with_an_item_is_its_outcome_at_once() -> None:
    refused = errors.InvalidRequest("no audio")
    tries = Counter[int]()

    def work(server: str, item: int) -> int:
        tries[item] += 1
        raise refused

    assert set(outcomes(Fleet(("a", "b")), work, 9).values()) == {refused}
    assert set(tries.values()) == {1}


def test_leaving_early_begins_nothing_more() -> None:
    begun = Counter[int]()

    def work(server: str, item: int) -> int:
        begun[item] += 1
        return item

    run = Fleet(("a",), concurrency=1).spread(range(100_000), work)
    next(run)
    run.close()
    before = len(begun)
    threading.Event().wait(0.2)
    assert len(begun) <= before + 1


def test_what_ends_the_whole_run_is_raised() -> None:
    def work(server: str, item: int) -> int:
        if item == 2:
            raise errors.UsageError("no space left")
        return item

    with pytest.raises(errors.UsageError, match="no space left"):
        list(Fleet(("a",), concurrency=1).spread(range(5), work))


def test_a_fault_of_the_program_is_not_swallowed() -> None:
    def work(server: str, item: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(Fleet(("a", "b")).spread(range(3), work))


def test_rests_grow_and_end() -> None:
    rests = [rest_s(failures) for failures in range(1, 40)]
    assert rests[0] == 0.5
    assert rests == sorted(rests)
    assert rests[-1] == 30.0
