"""Telephone audio in disguise is told from audio that is what it says."""

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.audio.bandwidth import BandCheck, is_narrow_band
from oasr_backend.utils.paths import assets_dir
from tests.audio.recordings import RATE, telephone

CLIPS = sorted((assets_dir() / "clips").glob("*.flac"))


def speech(name: str) -> np.ndarray:
    samples, _ = soundfile.read(assets_dir() / "clips" / name, dtype="float32")
    return samples


def in_16_bits(samples: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16)


@pytest.mark.parametrize("path", CLIPS, ids=lambda path: path.name)
@pytest.mark.parametrize("gain", [0.1, 1.0])
def test_clips_are_wide_and_their_telephone_versions_narrow(path, gain: float) -> None:  # type: ignore[no-untyped-def]
    samples = speech(path.name) * np.float32(gain)
    # Quiet speech is loud enough for so long.
    samples = np.tile(samples, 4)
    for make in (lambda wave: wave.astype(np.float32), in_16_bits):
        assert not is_narrow_band(make(samples))
        assert is_narrow_band(make(telephone(samples)))


def test_silence_noise_and_too_little_speech_say_nothing() -> None:
    narrow = telephone(speech("digits.flac"))
    assert not is_narrow_band(np.zeros(60 * RATE, dtype=np.float32))
    assert not is_narrow_band(np.zeros(0, dtype=np.int16))
    assert not is_narrow_band(narrow[: RATE // 2])
    hiss = (np.random.default_rng(0).standard_normal(20 * RATE) * 1e-3).astype(np.float32)
    assert not is_narrow_band(telephone(hiss))
    assert not is_narrow_band(hiss * 100)


def test_one_click_does_not_hide_it_and_a_pause_does_not_matter() -> None:
    narrow = telephone(np.tile(speech("digits.flac"), 3))
    narrow[RATE] = 1.0
    narrow = np.concatenate([np.zeros(30 * RATE, dtype=np.float32), narrow])
    assert is_narrow_band(narrow)


def test_the_verdict_is_taken_back_when_there_is_energy_after_all() -> None:
    check = BandCheck()
    check.feed(telephone(speech("digits.flac")))
    assert check.is_narrow
    check.feed(np.tile(speech("digits.flac"), 2))
    assert not check.is_narrow


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38])
def test_values_that_are_no_samples_do_no_harm(value: float) -> None:
    """Clips are refused for them later; here they must raise nothing, warnings included."""
    samples = np.tile(speech("digits.flac"), 2)
    samples[::100] = value
    is_narrow_band(samples)


@given(st.lists(st.integers(0, 20000), max_size=8), st.sampled_from(["wide", "narrow"]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_verdict_does_not_depend_on_the_pieces(sizes: list[int], kind: str) -> None:
    samples = speech("digits.flac")
    if kind == "narrow":
        samples = telephone(samples)
    check, begin = BandCheck(), 0
    for size in sizes:
        check.feed(samples[begin : begin + size])
        begin += size
    check.feed(samples[begin:])
    assert check.is_narrow == (kind == "narrow")


def test_what_is_kept_of_a_stream_is_bounded_and_a_settled_matter_costs_nothing() -> None:
    check = BandCheck()
    narrow = telephone(np.tile(speech("digits.flac"), 10))
    for begin in range(0, len(narrow), 777):
        check.feed(narrow[begin : begin + 777])
        assert len(check._tail) < 0.16 * RATE
    assert check.is_settled and check.is_narrow
    before = check._tail
    check.feed(narrow)
    assert check._tail is before
