"""Kaldi's log mel filter bank, batched."""

import math

import torch
from torch import Tensor

from oasr_backend.features.base import register_feature_extractor
from oasr_backend.features.spec import FeatureSpec

# float32 machine epsilon: the floor below which Kaldi takes no logarithm.
ENERGY_FLOOR = 1.1920928955078125e-07
# Of a natural logarithm of power.
DECIBELS = 10 / math.log(10)


def mel_scale(hertz: Tensor) -> Tensor:
    return 1127.0 * torch.log1p(hertz / 700.0)


def mel_filters(spec: FeatureSpec) -> Tensor:
    """Triangles that are linear in mel: [fft_size // 2 + 1, num_mel_bins] float32; the Nyquist bin is unused."""
    nyquist = spec.sample_rate / 2
    high = spec.high_freq if spec.high_freq > 0 else nyquist + spec.high_freq
    edges = mel_scale(torch.tensor([spec.low_freq, high], dtype=torch.float64))
    step = (edges[1] - edges[0]) / (spec.num_mel_bins + 1)
    left = edges[0] + step * torch.arange(spec.num_mel_bins, dtype=torch.float64)
    bins = spec.fft_size // 2
    mel = mel_scale(torch.arange(bins, dtype=torch.float64) * (spec.sample_rate / spec.fft_size))[:, None]
    up = (mel - left) / step
    down = (left + 2 * step - mel) / step
    weights = torch.minimum(up, down).clamp_min(0.0)
    return torch.nn.functional.pad(weights, (0, 0, 0, 1)).float()


def povey_window(size: int) -> Tensor:
    """Hann raised to 0.85, which goes to zero at the edges: [size] float32."""
    return torch.hann_window(size, periodic=False).pow(0.85)


@register_feature_extractor("fbank")
class Fbank:
    """Log mel energies by Kaldi's recipe without dither.

    Every frame is treated alone: mean removed, pre-emphasis inside the frame, Povey window, zero-padded FFT,
    power spectrum, mel triangles, natural logarithm floored at float32 epsilon. No energy term.
    """

    def __init__(self, spec: FeatureSpec, device: torch.device):
        self.spec = spec
        self._window = povey_window(spec.frame_samples).to(device)
        self._filters = mel_filters(spec).to(device)

    def __call__(self, waves: Tensor) -> Tensor:
        """`waves` [B, N] float32 in [-1, 1] -> [B, num_frames(N), num_mel_bins] float32."""
        spec = self.spec
        if spec.num_frames(waves.shape[-1]) == 0:
            return waves.new_zeros(waves.shape[0], 0, spec.num_mel_bins)
        frames = waves.unfold(-1, spec.frame_samples, spec.shift_samples) * spec.audio_scale
        frames -= frames.mean(-1, keepdim=True)
        emphasised = frames.clone()
        emphasised[..., 1:] -= spec.preemphasis * frames[..., :-1]
        emphasised[..., :1] -= spec.preemphasis * frames[..., :1]
        emphasised *= self._window
        spectrum = torch.fft.rfft(emphasised, n=spec.fft_size)
        power = spectrum.real.square() + spectrum.imag.square()
        return (power @ self._filters).clamp_min_(ENERGY_FLOOR).log_()

    def levels(self, features: Tensor) -> Tensor:
        """How loud frames [..., num_mel_bins] are, in dB, every bin counting the same: [...] float32."""
        return features.mean(-1) * DECIBELS
