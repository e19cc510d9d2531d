"""Random weights for one layer at a time."""

import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.models.config import AttentionConfig, ConvolutionConfig, EncoderConfig
from oasr_backend.models.geometry import FRONT_ENDS

CPU = torch.device("cpu")


def random_state(shapes: dict[str, tuple[int, ...]], seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def reader(state: dict[str, Tensor]) -> WeightReader:
    return WeightReader(state, "a test")


def randn(*shape: int, seed: int = 2) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def encoder_config(**changes: object) -> EncoderConfig:
    """A very small encoder."""
    values: dict[str, object] = {
        "input_dim": 20,
        "dim": 8,
        "layers": 1,
        "attention": AttentionConfig(2, 2, 4, "rel_pos", True, True, True),
        "ffn_dim": 16,
        "ffn_bias": True,
        "activation": "swish",
        "macaron": True,
        "convolution": ConvolutionConfig(4, True, "layer_norm", True),
        "normalize_before": True,
        "final_norm": True,
        "front_end": "conv2d",
        "geometry": FRONT_ENDS["conv2d"],
    }
    return EncoderConfig(**{**values, **changes})  # type: ignore[arg-type]
