"""MFCC and fbank against an independent implementation of Kaldi's recipes."""

import kaldi_native_fbank as knf
import numpy as np
import pytest
import torch

from oasr_backend.features.base import build_extractor
from oasr_backend.features.mfcc import cosine_transform, lifter_weights
from oasr_backend.features.spec import FeatureSpec

CPU = torch.device("cpu")
RATE = 16000


def sweep(seconds: float = 1.5) -> np.ndarray:
    """A rising tone in noise, as loud as speech: [samples] float32 in [-1, 1]."""
    time = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(3).standard_normal(len(time)) * 0.02
    return (0.3 * np.sin(2 * np.pi * (200 + 1500 * time) * time) + noise).astype(np.float32)


def configure(options: knf.FbankOptions | knf.MfccOptions, spec: FeatureSpec) -> None:
    options.frame_opts.samp_freq = RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.frame_length_ms = spec.frame_length_ms
    options.frame_opts.frame_shift_ms = spec.frame_shift_ms
    options.mel_opts.num_bins = spec.num_mel_bins
    options.mel_opts.low_freq = spec.low_freq
    options.mel_opts.high_freq = spec.high_freq
    options.use_energy = False


def peer(spec: FeatureSpec, wave: np.ndarray) -> np.ndarray:
    if spec.kind == "mfcc":
        options = knf.MfccOptions()
        configure(options, spec)
        options.num_ceps = spec.num_ceps
        options.cepstral_lifter = spec.cepstral_lifter
        extractor = knf.OnlineMfcc(options)
    else:
        options = knf.FbankOptions()
        configure(options, spec)
        extractor = knf.OnlineFbank(options)
    extractor.accept_waveform(RATE, (wave * spec.audio_scale).tolist())
    extractor.input_finished()
    return np.stack([extractor.get_frame(index) for index in range(extractor.num_frames_ready)])


@pytest.mark.parametrize(
    "spec",
    [
        FeatureSpec(),
        FeatureSpec(num_mel_bins=23, frame_length_ms=32, frame_shift_ms=16),
        FeatureSpec(kind="mfcc", num_mel_bins=23, num_ceps=13),
        FeatureSpec(kind="mfcc", num_mel_bins=40, num_ceps=40),
        FeatureSpec(kind="mfcc", num_mel_bins=40, num_ceps=20, low_freq=40.0, high_freq=-200.0),
        FeatureSpec(kind="mfcc", num_mel_bins=23, num_ceps=13, cepstral_lifter=0.0),
    ],
)
def test_features_equal_those_of_the_peer(spec: FeatureSpec) -> None:
    ours = build_extractor(spec, CPU)(torch.from_numpy(sweep())[None])[0].numpy()
    theirs = peer(spec, sweep())
    assert ours.shape == theirs.shape == (spec.num_frames(len(sweep())), spec.dim)
    np.testing.assert_allclose(ours, theirs, atol=5e-2 if spec.kind == "mfcc" else 2e-2)
    assert np.abs(ours - theirs).mean() < 2e-3


def test_the_cosine_transform_is_orthonormal() -> None:
    matrix = cosine_transform(23, 23)
    torch.testing.assert_close(matrix.T @ matrix, torch.eye(23), atol=1e-5, rtol=0)


def test_no_lifter_weighs_nothing() -> None:
    assert lifter_weights(5, 0.0).tolist() == [1.0] * 5
    assert lifter_weights(12, 22.0)[11].item() == pytest.approx(12.0)
