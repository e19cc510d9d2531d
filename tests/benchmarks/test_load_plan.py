"""What the users of a load test do."""

import random
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as some

from benchmarks.load_plan import Ending, Mix, mixed_lengths, plan_call

COUNTS = [1, 8, 16, 32]


@given(some.integers(0, 2**32))
def test_a_call_lies_in_its_recording_and_begins_within_a_chunk(seed: int) -> None:
    call = plan_call(random.Random(seed), COUNTS, 0.64, Mix(0.3, 0.3))
    assert 0 <= call.phase_s < 0.64
    assert 1 <= call.chunks <= COUNTS[call.recording]
    if call.ending is Ending.FINISHED:
        assert call.chunks == COUNTS[call.recording]
    if call.ending is Ending.CANCELLED:
        assert call.chunks > 1


def test_endings_have_their_shares_and_lengths_are_mixed() -> None:
    rng = random.Random(0)
    calls = [plan_call(rng, COUNTS, 0.64, Mix(0.2, 0.1)) for _ in range(2000)]
    endings = Counter(call.ending for call in calls)
    assert abs(endings[Ending.ABANDONED] - 400) < 80
    # Calls of one chunk are not cancelled.
    assert abs(endings[Ending.CANCELLED] - 150) < 60
    assert {call.recording for call in calls} == set(range(len(COUNTS)))


def test_without_shares_every_call_is_finished() -> None:
    rng = random.Random(0)
    assert {plan_call(rng, COUNTS, 0.64, Mix(0, 0)).ending for _ in range(100)} == {Ending.FINISHED}


def test_recordings_are_beginnings_of_these_lengths() -> None:
    wave = np.arange(48000, dtype=np.int16)
    parts = mixed_lengths(wave, (0.5, 2.0))
    assert [len(part) for part in parts] == [8000, 32000]
    assert np.array_equal(parts[0], wave[:8000])
