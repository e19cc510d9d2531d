"""Features for the peer, from the engine's own extractor."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import oasr_backend.checkpoints.wenet
import oasr_backend.features.fbank  # noqa: F401 (both register what the checkpoint names)
from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.features.base import build_extractor
from oasr_backend.models.config import WenetConfig
from oasr_backend.models.geometry import FrontEndGeometry


def features_of(checkpoint: Path, waves: Sequence[np.ndarray]) -> tuple[list[np.ndarray], FrontEndGeometry]:
    """Features [T, bins] float32 of every wave, and how the model takes them."""
    loaded = load_checkpoint(checkpoint)
    assert isinstance(loaded.model, WenetConfig)
    with torch.inference_mode():
        extract = build_extractor(loaded.features, torch.device("cpu"))
        features = [extract(torch.from_numpy(wave)[None])[0].numpy() for wave in waves]
    return features, loaded.model.encoder.geometry


def padded(features: Sequence[np.ndarray]) -> np.ndarray:
    """[B, T, bins], zeros behind the shorter ones."""
    batch = np.zeros((len(features), max(map(len, features)), features[0].shape[1]), np.float32)
    for row, one in zip(batch, features, strict=True):
        row[: len(one)] = one
    return batch
