"""Registers the Transformer."""

import torch

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.models.base import register_model
from oasr_backend.models.transformer.layer import TransformerLayer
from oasr_backend.models.wenet import WenetModel


@register_model("transformer")
def build_transformer(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> WenetModel:
    return WenetModel(checkpoint, TransformerLayer, device, dtype)
