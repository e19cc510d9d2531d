"""What the engine asks of a feature extractor, and the registry of kinds."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec


class FeatureExtractor(Protocol):
    """Frames of samples to vectors; every frame depends on its own samples alone."""

    spec: FeatureSpec

    def __call__(self, waves: Tensor) -> Tensor:
        """`waves` [B, N] float32 in [-1, 1] -> [B, num_frames(N), dim] float32."""

    def levels(self, features: Tensor) -> Tensor:
        """How loud frames [..., dim] are, in dB: [...] float32."""


ExtractorBuilder = Callable[[FeatureSpec, torch.device], FeatureExtractor]

EXTRACTORS: dict[str, ExtractorBuilder] = {}


def register_feature_extractor(kind: str) -> Callable[[ExtractorBuilder], ExtractorBuilder]:
    def register(build: ExtractorBuilder) -> ExtractorBuilder:
        EXTRACTORS[kind] = build
        return build

    return register


def build_extractor(spec: FeatureSpec, device: torch.device) -> FeatureExtractor:
    """Raises CheckpointError for a kind that is not registered."""
    if spec.kind not in EXTRACTORS:
        raise CheckpointError(f"features of kind {spec.kind!r} are not supported (supported: {', '.join(EXTRACTORS)})")
    return EXTRACTORS[spec.kind](spec, device)
