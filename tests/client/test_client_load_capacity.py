"""The search for the largest load that passes."""

from hypothesis import given
from hypothesis import strategies as some

from oasr_client.load.capacity import capacity


@given(some.integers(0, 300), some.integers(1, 300), some.integers(1, 256))
def test_it_finds_the_largest_number_within_its_resolution(largest: int, start: int, limit: int) -> None:
    asked: list[int] = []

    def passes(number: int) -> bool:
        asked.append(number)
        return number <= largest

    found = capacity(passes, start, limit, resolution=0.1)
    reachable = min(largest, limit)
    assert found <= reachable
    assert reachable - found <= max(1, 0.1 * found) - 1 or reachable == found
    assert len(asked) == len(set(asked))
    assert all(1 <= number <= limit for number in asked)


def test_nothing_passes() -> None:
    assert capacity(lambda number: False, 8, 64) == 0


def test_everything_passes() -> None:
    assert capacity(lambda number: True, 8, 50) == 50
