"""What the engine knows of a model, and the registry of architectures."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache, ChunkPlan
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import CheckpointError
from oasr_backend.models.config import ModelConfig


class AsrModel(ABC):
    """A model with an encoder and a head. All calls run under `torch.inference_mode`."""

    config: ModelConfig

    @abstractmethod
    def encode_clips(self, features: Tensor, lengths: Tensor, chunk: int = -1, left_chunks: int = -1) -> Tensor:
        """`features` [B, T, bins] float32, `lengths` [B] encoder frames -> hidden [B, n, dim].

        A positive `chunk` limits every frame to what it would see when streamed in chunks of that size.
        """

    @abstractmethod
    def encode_chunk(
        self, features: Tensor, attention: AttentionCache, convolution: ConvolutionCache, plan: ChunkPlan
    ) -> Tensor:
        """`features` [W, window, bins] float32, one step of W streams -> hidden [W, n, dim]; the caches move on."""

    @abstractmethod
    def score(self, hidden: Tensor, needs: Needs) -> FrameScores:
        """`hidden` [B, n, dim] -> what the decode strategy needs."""

    @abstractmethod
    def convolution_cache(self, slots: int) -> ConvolutionCache: ...


MODELS: dict[str, Callable[[Checkpoint, torch.device, torch.dtype], AsrModel]] = {}


def register_model(
    architecture: str,
) -> Callable[
    [Callable[[Checkpoint, torch.device, torch.dtype], AsrModel]],
    Callable[[Checkpoint, torch.device, torch.dtype], AsrModel],
]:
    def register(
        build: Callable[[Checkpoint, torch.device, torch.dtype], AsrModel],
    ) -> Callable[[Checkpoint, torch.device, torch.dtype], AsrModel]:
        MODELS[architecture] = build
        return build

    return register


def build_model(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> AsrModel:
    """Raises CheckpointError for an architecture that is not registered or weights that do not fit it."""
    architecture = checkpoint.model.architecture
    if architecture not in MODELS:
        raise CheckpointError(f"architecture {architecture!r} is not supported (supported: {', '.join(MODELS)})")
    return MODELS[architecture](checkpoint, device, dtype)
