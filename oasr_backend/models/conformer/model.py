"""Registers the Conformer."""

import torch

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.models.base import register_model
from oasr_backend.models.conformer.layer import ConformerLayer
from oasr_backend.models.wenet import WenetModel


@register_model("conformer")
def build_conformer(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> WenetModel:
    return WenetModel(checkpoint, ConformerLayer, device, dtype)
