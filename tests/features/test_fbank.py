"""The filter bank against its recipe."""

import math

import numpy as np
import pytest
import torch

from oasr_backend.features.fbank import Fbank, mel_filters
from oasr_backend.features.spec import FeatureSpec

CPU = torch.device("cpu")
SPEC = FeatureSpec()
SILENCE = math.log(1.1920928955078125e-07)


def noise(samples: int, seed: int = 0, scale: float = 0.1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(samples) * scale).astype(np.float32)


def features(samples: np.ndarray, spec: FeatureSpec = SPEC) -> np.ndarray:
    return Fbank(spec, CPU)(torch.from_numpy(samples)[None])[0].numpy()


def by_the_book(samples: np.ndarray) -> np.ndarray:
    """Kaldi's recipe in float64, one frame and one filter at a time."""
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 399)) ** 0.85
    edges = np.linspace(1127 * np.log1p(20 / 700), 1127 * np.log1p(8000 / 700), 82)
    mel = 1127 * np.log1p(np.arange(256) * 16000 / 512 / 700)
    rows = []
    for start in range(0, len(samples) - 399, 160):
        frame = samples[start : start + 400].astype(np.float64) * 32768
        frame -= frame.mean()
        frame = frame - 0.97 * np.concatenate((frame[:1], frame[:-1]))
        power = np.abs(np.fft.rfft(frame * window, 512)) ** 2
        row = []
        for left, center, right in zip(edges, edges[1:], edges[2:]):
            triangle = np.minimum((mel - left) / (center - left), (right - mel) / (right - center))
            row.append(np.log(max(power[:256] @ np.maximum(triangle, 0), 1.1920928955078125e-07)))
        rows.append(row)
    return np.array(rows)


def test_every_step_of_the_recipe() -> None:
    samples = noise(2000)
    np.testing.assert_allclose(features(samples), by_the_book(samples), atol=2e-3)


def test_silence_is_the_logarithm_of_the_floor() -> None:
    np.testing.assert_allclose(features(np.zeros(1600, dtype=np.float32)), SILENCE, rtol=1e-6)
    assert pytest.approx(-15.942385, abs=1e-5) == SILENCE


def test_a_constant_offset_is_removed() -> None:
    np.testing.assert_allclose(features(noise(4000) + np.float32(0.25)), features(noise(4000)), atol=2e-2)


def test_twice_the_amplitude_is_four_times_the_energy() -> None:
    np.testing.assert_allclose(features(2 * noise(4000)) - features(noise(4000)), 2 * math.log(2), atol=1e-3)


def test_a_tone_is_loudest_in_its_own_filter() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(1600) / 16000).astype(np.float32)
    nearest = int(mel_filters(SPEC)[32].argmax())  # bin 32 of 512 points is 1000 Hz
    assert (features(tone).argmax(axis=1) == nearest).all()


def test_the_scale_of_the_samples_comes_from_the_checkpoint() -> None:
    scaled = features(noise(800) * 32768, FeatureSpec(audio_scale=1.0))
    np.testing.assert_allclose(scaled, features(noise(800)), atol=1e-3)


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_less_than_a_frame_gives_none(samples: int) -> None:
    assert features(noise(samples)).shape == (0, 80)


def test_frames_depend_on_their_own_samples_alone() -> None:
    samples = noise(4000)
    changed = samples.copy()
    changed[2000:] = noise(2000, seed=1)
    untouched = SPEC.num_frames(2000)
    np.testing.assert_allclose(features(changed)[:untouched], features(samples)[:untouched], atol=1e-4)
    assert np.abs(features(changed)[untouched:] - features(samples)[untouched:]).max() > 0.1


def test_filters_are_triangles_that_leave_the_nyquist_bin_alone() -> None:
    filters = mel_filters(SPEC).numpy()
    assert filters.shape == (257, 80)
    assert not filters[-1].any() and filters.min() == 0 and filters.max() <= 1
    assert (filters.sum(axis=0) > 0).all()
    peaks = filters.argmax(axis=0)
    assert (np.diff(peaks) >= 0).all()
