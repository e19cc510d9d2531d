"""Cutting recordings and joining what was heard."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.base import Hypothesis
from oasr_backend.engine.longform import CutRule, Heard, Window, cut, join, mean_square, needs_space, quiet_place

RATE = 1000
UNIT = 40
RULE = CutRule(sample_rate=RATE, window=10_000, overlap=1000, unit=UNIT)
SECONDS_PER_FRAME = UNIT / RATE


def noise(seconds: float, level: float = 0.1) -> np.ndarray:
    return (np.random.default_rng(3).standard_normal(round(seconds * RATE)) * level).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), dtype=np.float32)


def test_power_of_whole_frames() -> None:
    np.testing.assert_allclose(mean_square(np.array([1, 2, 3, 4, 5], dtype=np.float32), 2, 2), [2.5, 12.5])
    assert mean_square(np.ones(3, dtype=np.float32), 4, 1).size == 0


def test_a_short_recording_is_one_window() -> None:
    assert list(cut(noise(10), RULE)) == [Window(0, 10_000, 0)]
    assert list(cut(noise(0.5), RULE)) == [Window(0, 500, 0)]
    assert list(cut(noise(0), RULE)) == [Window(0, 0, 0)]


def test_a_window_ends_shortly_before_the_end_of_the_first_pause_after_its_first_second() -> None:
    speech = np.concatenate([noise(0.5), silence(0.4), noise(2), silence(0.2), noise(1), silence(0.8), noise(3)])
    first, second = cut(speech, RULE)
    assert abs(first.end - 4700) <= UNIT
    assert (second.start, second.shared) == (first.end, 0)


def test_a_recording_that_ends_in_silence_keeps_it_in_its_last_window() -> None:
    speech = np.concatenate([noise(3), silence(0.25)])
    assert list(cut(speech, RULE)) == [Window(0, 3250, 0)]


def test_quiet_speech_after_loud_speech_is_no_pause() -> None:
    hum = noise(20, 0.0005)
    hum[:8000] += noise(8, 0.2)
    hum[10_000:17_000] += noise(7, 0.01)
    pauses = [window.end for window in cut(hum, RULE)]
    assert all(8000 <= end <= 10_000 or end >= 17_000 for end in pauses)
    assert any(8000 <= end <= 10_000 for end in pauses)


def test_without_silence_windows_overlap() -> None:
    windows = list(cut(noise(25), RULE))
    assert windows == [Window(0, 10_000, 0), Window(9000, 19_000, 1000), Window(18_000, 25_000, 1000)]


@pytest.mark.parametrize("bang", [0.0, 1.0])
def test_a_bang_or_a_low_hum_makes_no_silence_of_speech(bang: float) -> None:
    region = noise(10, 0.02)
    region[1000:1020] = bang
    assert quiet_place(region, RATE) is None


def test_all_silence_is_silence() -> None:
    assert quiet_place(silence(10), RATE) is not None
    assert quiet_place(silence(0.01), RATE) is None


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 6000)), min_size=1, max_size=12),
    st.integers(2000, 9000),
    st.integers(0, 900),
)
def test_windows_cover_every_sample_in_order(parts: list[tuple[bool, int]], window: int, overlap: int) -> None:
    samples = np.concatenate([noise(count / RATE) if loud else silence(count / RATE) for loud, count in parts])
    rule = CutRule(RATE, window, overlap, UNIT)
    windows = list(cut(samples, rule))
    assert windows[0].start == 0 and windows[-1].end == len(samples)
    for one in windows:
        assert one.end - one.start <= window and one.start % UNIT == 0
    for before, after in pairwise(windows):
        assert before.start < after.start <= before.end
        assert after.shared == before.end - after.start <= overlap + UNIT


def heard(words: list[tuple[str, int]], first_frame: int = 0, shared: int = 0) -> Heard:
    """A window in which each text was heard at its frame of the recording."""
    frames = tuple(frame - first_frame for _, frame in words)
    pieces = tuple(text for text, _ in words)
    tokens = tuple(sum(map(ord, text)) for text, _ in words)
    return Heard(Hypothesis(tokens, frames, (0.5,) * len(words), -1.0), pieces, first_frame, shared)


def joined(*parts: Heard) -> tuple[str, tuple[int, ...]]:
    hypothesis, pieces = join(parts, SECONDS_PER_FRAME)
    assert len(hypothesis.tokens) == len(hypothesis.frames) == len(hypothesis.confidences) == len(pieces)
    assert hypothesis.score == -1.0 * len(parts)
    return "".join(pieces).strip(), hypothesis.frames


def test_windows_cut_in_silence_keep_everything() -> None:
    text, frames = joined(heard([(" a", 5), (" b", 20)]), heard([(" b", 101), (" c", 130)], first_frame=100))
    assert (text, frames) == ("a b b c", (5, 20, 101, 130))


def test_windows_that_share_audio_each_keep_their_half() -> None:
    left = heard([(" a", 80), (" b", 105), (" c", 120)])
    right = heard([(" b", 105), (" c", 120), (" d", 140)], first_frame=100, shared=25)
    assert joined(left, right) == ("a b c d", (80, 105, 120, 140))


@pytest.mark.parametrize(("left_frame", "right_frame"), [(111, 116), (116, 111)])
def test_a_word_on_the_seam_is_kept_once(left_frame: int, right_frame: int) -> None:
    """The seam is at frame 112: both windows would keep the word, or neither."""
    left = heard([(" a", 90), (" word", left_frame)])
    right = heard([(" word", right_frame), (" b", 140)], first_frame=100, shared=25)
    text, frames = joined(left, right)
    assert text == "a word b" and len(frames) == 3


def test_a_word_said_twice_stays_twice() -> None:
    left = heard([(" no", 105), (" no", 120)])
    right = heard([(" no", 105), (" no", 120)], first_frame=100, shared=25)
    assert joined(left, right)[0] == "no no"


def test_characters_without_spaces_merge_too() -> None:
    left = heard([("今", 90), ("天", 105), ("很", 113)])
    right = heard([("天", 105), ("很", 114), ("好", 130)], first_frame=100, shared=25)
    assert joined(left, right) == ("今天很好", (90, 105, 113, 130)) or joined(left, right)[0] == "今天很好"


def test_subwords_of_a_word_stay_together() -> None:
    left = heard([(" hel", 108), ("lo", 114), (" x", 123)])
    right = heard([(" hel", 108), ("lo", 115), (" world", 135)], first_frame=100, shared=25)
    assert joined(left, right)[0] == "hello world"


def test_texts_of_windows_are_parted_where_the_script_has_spaces() -> None:
    assert joined(heard([("ab", 5)]), heard([("cd", 105)], first_frame=100))[0] == "ab cd"
    assert joined(heard([("你", 5)]), heard([("好", 105)], first_frame=100))[0] == "你好"
    assert [needs_space(*pair) for pair in (("a", " b"), ("a ", "b"), ("", "b"), ("a", "b"), ("你", "b"))] == [
        False,
        False,
        False,
        True,
        False,
    ]


def test_silent_windows_add_nothing() -> None:
    assert joined(heard([]), heard([(" a", 105)], first_frame=100), heard([], first_frame=200))[0] == "a"
    assert joined(heard([(" a", 5)]), heard([], first_frame=100, shared=25), heard([(" b", 205)], first_frame=200))[
        0
    ] == ("a b")
