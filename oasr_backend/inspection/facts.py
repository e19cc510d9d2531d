"""What is known of a checkpoint and of the services that use it, as plain numbers and words."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EncoderFacts:
    """`kernel` is None where layers have no convolution; `rate` is feature frames per encoder frame."""

    layers: int
    dim: int
    heads: int
    kv_heads: int
    ffn_dim: int
    macaron: bool
    position: str
    kernel: int | None
    causal: bool
    convolution_norm: str | None
    front_end: str
    rate: int


@dataclass(frozen=True)
class DecoderFacts:
    """The attention decoder; `right_layers` is 0 for U2, weights are the checkpoint's own for rescoring."""

    left_layers: int
    right_layers: int
    reverse_weight: float
    ctc_weight: float


@dataclass(frozen=True)
class TrainingFacts:
    """Chunks in training: `static_chunk_size` is 0 where chunks of any size were, or none (not `streams`)."""

    streams: bool
    static_chunk_size: int
    varied_history: bool
    """Whether attention learnt to do with parts of the history."""


@dataclass(frozen=True)
class AudioFacts:
    """Features that the model takes; `normalised`: by statistics of its training data (CMVN)."""

    sample_rate: int
    features: str
    dim: int
    frame_length_ms: float
    frame_shift_ms: float
    normalised: bool


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint whose every weight fits. `encoder` and `decoder` are None for other families than WeNet's."""

    path: str
    format: str
    weights: str
    megabytes: float
    parameters: int
    architecture: str
    encoder: EncoderFacts | None
    decoder: DecoderFacts | None
    vocabulary: int
    units: str
    training: TrainingFacts
    audio: AudioFacts
    quantization: str | None


@dataclass(frozen=True)
class StepFacts:
    """A streaming step: `frames` of the encoder move a stream on by `ms`; the first needs `first_ms` of audio."""

    frames: int
    samples: int
    ms: float
    first_ms: float
    left_chunks: int
    """Chunks of history that are seen; all when negative."""


@dataclass(frozen=True)
class PoolFacts:
    """Pages of the attention cache: every stream sees its last `seconds` of audio; `mebibytes` in all."""

    streams: int
    seconds: float
    mebibytes: float


@dataclass(frozen=True)
class GraphFacts:
    """Whether steps are captured as CUDA graphs, and why not where they are not."""

    used: bool
    reason: str


@dataclass(frozen=True)
class ServiceFacts:
    """What one engine uses. What concerns streams alone is None for clips, and the other way round."""

    mode: Literal["streaming", "offline"]
    device: str
    processor: str
    dtype: str
    threads: int
    """Of a forward pass on a CPU."""
    decode_method: str
    graphs: GraphFacts
    step: StepFacts | None = None
    streams: int | None = None
    pool: PoolFacts | None = None
    """None for a pool whose size is settled when the model is loaded, as on a GPU."""
    batch: int | None = None
    """Clips in one batch."""
    longest_seconds: float | None = None
    """The longest clip."""
