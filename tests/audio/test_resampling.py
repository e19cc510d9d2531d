"""Pieces of any length give what the whole gives."""

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.audio.rates import MAX_RATE, MIN_RATE, SAMPLE_RATE, check_rate
from oasr_backend.audio.resampling import Resampler
from oasr_backend.errors import AudioError

RATES = (8000, 11025, 12345, 16000, 22050, 24000, 32000, 44100, 48000, 96000)
NOISE = (np.random.default_rng(5).standard_normal(48000) * 0.2).astype(np.float32)


@given(
    rate=st.sampled_from(RATES),
    samples=st.integers(0, len(NOISE)),
    sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=12),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_any_chunking_equals_one_shot_resampling(rate: int, samples: int, sizes: list[int]) -> None:
    wave = NOISE[:samples]
    resampler = Resampler(rate)
    pieces, begin = [], 0
    for size in sizes:
        pieces.append(resampler.feed(wave[begin : begin + size]))
        begin = min(begin + size, samples)
    pieces.append(resampler.feed(wave[begin:], is_last=True))
    np.testing.assert_allclose(np.concatenate(pieces), soxr.resample(wave, rate, SAMPLE_RATE), atol=1e-6)


@pytest.mark.parametrize("rate", RATES)
def test_no_more_is_held_back_than_is_said(rate: int) -> None:
    resampler = Resampler(rate)
    given_s, out = 0.0, 0
    for begin in range(0, len(NOISE), rate // 50):
        piece = NOISE[begin : begin + rate // 50]
        given_s += len(piece) / rate
        out += len(resampler.feed(piece))
        assert given_s - out / SAMPLE_RATE <= 0.12


@pytest.mark.parametrize("rate", [0, -8000, MIN_RATE - 1, MAX_RATE + 1])
def test_a_rate_that_no_audio_comes_at_is_refused(rate: int) -> None:
    with pytest.raises(AudioError, match=f"AUDIO is at {rate} Hz; send audio of 8000 to 384000 Hz"):
        check_rate(rate, "AUDIO is at")
