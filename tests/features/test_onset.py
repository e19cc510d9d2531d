"""Where speech sets on behind a pause."""

import numpy as np
import pytest

from oasr_backend.features.onset import Onset, OnsetDetector, OnsetRule, noise_limit, silence_limit, stretches

SECONDS = 0.04
QUIET, LOUD = -60.0, 0.0


def told(levels: list[float], size: int) -> list[tuple[int, bool]]:
    """Onsets of a stream that comes in parts of `size` frames, counted from its start."""
    detector = OnsetDetector(OnsetRule(), SECONDS)
    found = []
    for start in range(0, len(levels), size):
        found += [(start + one.place, one.is_clear) for one in detector.feed(levels[start : start + size])]
    return found


@pytest.mark.parametrize("size", [1, 3, 16, 1000])
def test_speech_sets_on_behind_every_pause(size: int) -> None:
    levels = [QUIET] * 40 + [LOUD] * 30 + [QUIET] * 10 + [LOUD] * 30
    # What follows an onset shows how loud it is: for a while it may be told late.
    found = told(levels, size)
    assert {place for place, _ in found} == {40, 80}
    assert [place for place, is_clear in found if is_clear] == [40, 80]


def test_a_short_gap_is_no_pause() -> None:
    assert told([LOUD] * 30 + [QUIET] * 7 + [LOUD] * 30, 16) == []
    assert told([LOUD] * 30 + [QUIET] * 8 + [LOUD] * 30, 16) == [(38, True)]


def test_speech_above_steady_noise_sets_on_less_clearly() -> None:
    noise = list(np.random.default_rng(0).uniform(-20.0, -16.0, 50))
    assert told(noise + [LOUD] * 30, 16) == [(50, False)]


@pytest.mark.parametrize("level", [LOUD, QUIET, -200.0])
def test_nothing_sets_on_where_nothing_changes(level: float) -> None:
    assert told([level] * 500, 16) == []


def test_speech_from_the_first_frame_on_sets_on_nowhere() -> None:
    assert told([LOUD] * 200, 16) == []


def test_frames_that_come_again_are_judged_again() -> None:
    detector = OnsetDetector(OnsetRule(), SECONDS)
    assert detector.feed([QUIET] * 12 + [LOUD] * 4) == [Onset(12, True)]
    detector.rewind(9)
    assert detector.feed([QUIET] * 5 + [LOUD] * 11) == [Onset(5, True)]


def test_loudness_is_judged_against_the_last_seconds() -> None:
    rule = OnsetRule(memory_seconds=2.0)
    detector = OnsetDetector(rule, SECONDS)
    detector.feed([60.0] * 100)
    # Beside what was heard before all of this is silence; two seconds later none of that counts.
    assert detector.feed([LOUD] * 100) == []
    assert detector.feed([QUIET] * 20 + [LOUD] * 20) == [Onset(20, True)]


def test_no_frames_tell_nothing() -> None:
    assert OnsetDetector(OnsetRule(), SECONDS).feed([]) == []


def test_silence_is_far_below_the_loud_and_near_the_quiet() -> None:
    spread = np.concatenate((np.full(50, -70.0), np.full(50, 0.0)))
    assert silence_limit(spread) == -45.0
    assert silence_limit(np.concatenate((np.full(50, -40.0), np.full(50, 0.0)))) == -25.0
    # Nothing that is as loud as the rest is silent.
    assert silence_limit(np.zeros(10)) == -25.0
    assert noise_limit(np.zeros(10)) == 6.0


def test_stretches_are_as_long_as_asked_for() -> None:
    levels = np.array([0, 9, 0, 0, 9, 0, 0, 0])
    assert stretches(levels, 1.0, 2) == [(2, 4), (5, 8)]
    assert stretches(levels, 1.0, 3) == [(5, 8)]
    assert stretches(levels, 10.0, 8) == [(0, 8)]
