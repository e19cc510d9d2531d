"""What the engine knows of a model, and the registry of architectures."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.decode.base import Rescorer
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.models.config import CacheSpec, ModelConfig
from oasr_backend.models.encoder import EncoderMemory
from oasr_backend.models.geometry import FrontEndGeometry


class AsrModel(ABC):
    """A model with an encoder and a head. All calls run under `torch.inference_mode`."""

    config: ModelConfig
    geometry: FrontEndGeometry
    """How feature frames become encoder frames."""
    streaming_runtime: str = "paged"
    """The registered runtime that holds its streams' state."""
    cache_spec: CacheSpec
    """What a stream keeps, for runtimes that hold pages."""
    feature_dim: int | None = None
    """Numbers a feature frame, for a model whose passes do the same on the device whatever their inputs hold and ask
    the host nothing, so that they may be captured as graphs; None: they may not."""
    rescorer: Rescorer | None = None
    """A decoder for second passes, where the model has one."""

    @property
    @abstractmethod
    def fresh_convolution_history(self) -> Tensor | None:
        """What a new stream's convolution history holds in every frame: [layers, dim]; None where there is none."""

    @abstractmethod
    def encode_clips(self, features: Tensor, lengths: Tensor, chunk: int = -1, left_chunks: int = -1) -> Tensor:
        """`features` [B, T, bins] float32, `lengths` [B] encoder frames -> hidden [B, n, dim].

        A positive `chunk` limits every frame's attention to what it would see when streamed in chunks of that size.
        """

    def encode_packed(self, features: Tensor, kept: Tensor, lengths: Sequence[int]) -> Tensor:
        """Clips in one gapless row: `features` [1, T, bins], `kept` [Σ lengths] the row's encoder frames that belong
        to a clip, `lengths` encoder frames of each -> hidden [1, Σ lengths, dim], equal to each clip's alone.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot run packed rows; set enable_sequence_packing=False")

    @abstractmethod
    def encode_chunk(self, features: Tensor, positions: Tensor, memory: EncoderMemory) -> Tensor:
        """One step of W streams: `features` [W, window, bins] float32, `positions` [W, n] absolute encoder frames.

        Returns hidden [W, n, dim]; the memory moves on.
        """

    @abstractmethod
    def score(self, hidden: Tensor, needs: Needs) -> FrameScores:
        """`hidden` [B, n, dim] -> what the decode strategy needs."""


ModelBuilder = Callable[[Checkpoint, torch.device, torch.dtype], AsrModel]

MODELS: dict[str, ModelBuilder] = {}


def register_model(architecture: str) -> Callable[[ModelBuilder], ModelBuilder]:
    def register(build: ModelBuilder) -> ModelBuilder:
        MODELS[architecture] = build
        return build

    return register


def with_architecture(checkpoint: Checkpoint, architecture: str | None) -> Checkpoint:
    """The checkpoint as one of `architecture`, whatever it names itself; None leaves it as it is.

    Raises ConfigError for an architecture that is not registered.
    """
    if architecture is None:
        return checkpoint
    if architecture not in MODELS:
        raise ConfigError(f"architecture is {architecture!r}; choose a registered one: {', '.join(sorted(MODELS))}")
    return replace(checkpoint, model=replace(checkpoint.model, architecture=architecture))


def build_model(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> AsrModel:
    """Raises CheckpointError for an architecture that is not registered or weights that do not fit it."""
    architecture = checkpoint.model.architecture
    if architecture not in MODELS:
        raise CheckpointError(f"architecture {architecture!r} is not supported (supported: {', '.join(MODELS)})")
    return MODELS[architecture](checkpoint, device, dtype)
