"""The frozen heap and who shares it."""

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from oasr_backend.utils.heap import _HEAP, FrozenHeap, HeapFreeze


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Each test alone with the collector, which the tests before it may have left frozen."""
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.fixture
def heap() -> FrozenHeap:
    return FrozenHeap()


class Thing:
    """Something that may be in a cycle."""

    other: object = None


def cycle() -> Thing:
    one, two = Thing(), Thing()
    one.other, two.other = two, one
    return one


class Owner:
    """What holds a share as an engine does: as its last attribute."""

    def __init__(self, heap: FrozenHeap):
        self.held = cycle()
        self.freeze = HeapFreeze(heap)


def test_what_lives_is_frozen_until_it_is_released(heap: FrozenHeap) -> None:
    assert gc.get_freeze_count() == 0
    kept = cycle()
    handle = HeapFreeze(heap)
    assert gc.get_freeze_count() > 1000
    assert not any(thing is kept for thing in gc.get_objects())
    handle.release()
    assert gc.get_freeze_count() == 0
    assert any(thing is kept for thing in gc.get_objects())


def test_the_heap_stays_frozen_for_the_survivor(heap: FrozenHeap) -> None:
    first, second = HeapFreeze(heap), HeapFreeze(heap)
    first.release()
    assert gc.get_freeze_count() > 1000
    second.release()
    assert gc.get_freeze_count() == 0


def test_releasing_twice_counts_once(heap: FrozenHeap) -> None:
    first, second = HeapFreeze(heap), HeapFreeze(heap)
    first.release()
    first.release()
    assert gc.get_freeze_count() > 1000
    second.release()
    assert gc.get_freeze_count() == 0


def test_garbage_is_not_frozen(heap: FrozenHeap) -> None:
    dead = weakref.ref(cycle())
    HeapFreeze(heap).release()
    assert dead() is None


def test_a_released_owner_is_given_back_while_another_lives(heap: FrozenHeap) -> None:
    owner, survivor = Owner(heap), HeapFreeze(heap)
    held = weakref.ref(owner.held)
    owner.held = Thing()
    gc.collect()
    assert held() is not None, "frozen garbage is not collected"
    owner.freeze.release()
    assert held() is None
    assert gc.get_freeze_count() > 1000
    survivor.release()


def test_an_owner_dropped_without_release_is_given_back(heap: FrozenHeap) -> None:
    survivor, owner = HeapFreeze(heap), Owner(heap)
    held = weakref.ref(owner.held)
    del owner
    assert held() is None
    assert gc.get_freeze_count() > 1000
    survivor.release()
    assert gc.get_freeze_count() == 0


def test_the_last_owner_dropped_without_release_thaws(heap: FrozenHeap) -> None:
    owner = Owner(heap)
    held = weakref.ref(owner.held)
    del owner
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert held() is None


def test_the_next_owner_frees_what_died_frozen(heap: FrozenHeap) -> None:
    first = Owner(heap)
    first.held.other = first
    dead = weakref.ref(first)
    del first
    gc.collect()
    assert dead() is not None, "a frozen cycle outlives its last reference"
    second = HeapFreeze(heap)
    assert dead() is None
    second.release()
    assert gc.get_freeze_count() == 0


def test_a_release_from_within_a_collection_is_heard(heap: FrozenHeap) -> None:
    owner = Owner(heap)
    owner.held.other = owner
    survivor = HeapFreeze(heap)
    del owner
    survivor.release()
    assert gc.get_freeze_count() == 0
    with pytest.raises(RuntimeError):
        heap.release()


def test_releasing_more_often_than_acquiring_is_an_error(heap: FrozenHeap) -> None:
    with pytest.raises(RuntimeError, match="released more often than it was acquired; release each handle once"):
        heap.release()
    heap.acquire()
    heap.release()
    with pytest.raises(RuntimeError, match="more often"):
        heap.release()


def test_handles_share_the_heap_of_the_process() -> None:
    """Engines of other tests may hold it too."""
    before = _HEAP._users
    first, second = HeapFreeze(), HeapFreeze()
    assert _HEAP._users == before + 2
    first.release()
    assert gc.get_freeze_count() > 1000
    second.release()
    assert _HEAP._users == before


def test_any_thread_may_acquire_and_release(heap: FrozenHeap, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whole collections would only make it slow.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for turn in range(200):
                handle = HeapFreeze(heap)
                if turn % 2:
                    handle.release()
                    handle.release()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)
    assert gc.get_freeze_count() == 0
    with pytest.raises(RuntimeError):
        heap.release()
