"""Kaldi's mel frequency cepstral coefficients, batched."""

import math

import torch
from torch import Tensor

from oasr_backend.features.base import register_feature_extractor
from oasr_backend.features.fbank import DECIBELS, Fbank
from oasr_backend.features.spec import FeatureSpec


def cosine_transform(bins: int, ceps: int) -> Tensor:
    """The first `ceps` rows of the orthonormal DCT-II, transposed: [bins, ceps] float32."""
    row = torch.arange(ceps, dtype=torch.float64)
    column = torch.arange(bins, dtype=torch.float64)[:, None]
    matrix = torch.cos(math.pi / bins * (column + 0.5) * row) * math.sqrt(2.0 / bins)
    matrix[:, 0] = math.sqrt(1.0 / bins)
    return matrix.float()


def lifter_weights(ceps: int, lifter: float) -> Tensor:
    """1 + L/2 sin(πk/L), all ones for L = 0: [ceps] float32."""
    if lifter == 0:
        return torch.ones(ceps)
    return 1.0 + lifter / 2 * torch.sin(math.pi * torch.arange(ceps) / lifter)


@register_feature_extractor("mfcc")
class Mfcc:
    """Liftered cosine transform of the log mel energies; no energy term."""

    def __init__(self, spec: FeatureSpec, device: torch.device):
        self.spec = spec
        self._fbank = Fbank(spec, device)
        transform = cosine_transform(spec.num_mel_bins, spec.num_ceps)
        self._transform = (transform * lifter_weights(spec.num_ceps, spec.cepstral_lifter)).to(device)

    def __call__(self, waves: Tensor) -> Tensor:
        """`waves` [B, N] float32 in [-1, 1] -> [B, num_frames(N), num_ceps] float32."""
        return self._fbank(waves) @ self._transform

    def levels(self, features: Tensor) -> Tensor:
        """How loud frames [..., num_ceps] are, in dB: the mean of the log mel energies, [...] float32."""
        return features[..., 0] * (DECIBELS / math.sqrt(self.spec.num_mel_bins))
