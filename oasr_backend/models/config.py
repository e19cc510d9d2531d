"""What a checkpoint says of its architecture, as plain numbers."""

from dataclasses import dataclass
from typing import Literal

from oasr_backend.models.geometry import FrontEndGeometry

Position = Literal["rel_pos", "abs_pos", "rope_pos", "no_pos"]
ConvolutionNorm = Literal["batch_norm", "layer_norm"]
Activation = Literal["none", "swish", "relu", "gelu"]


@dataclass(frozen=True)
class AttentionConfig:
    """Heads and biases. With `rel_pos` the position terms belong to a query head, so keys are kept per query head."""

    heads: int
    kv_heads: int
    head_dim: int
    position: Position
    query_bias: bool
    key_bias: bool
    value_bias: bool

    @property
    def key_heads(self) -> int:
        """Heads of the cached keys."""
        return self.heads if self.position == "rel_pos" else self.kv_heads


@dataclass(frozen=True)
class ConvolutionConfig:
    """A convolution module; `causal` looks back on kernel - 1 frames, else the kernel is centred."""

    kernel: int
    causal: bool
    norm: ConvolutionNorm
    bias: bool

    @property
    def history(self) -> int:
        """Frames that a stream carries from chunk to chunk."""
        return self.kernel - 1 if self.causal else 0


@dataclass(frozen=True)
class EncoderConfig:
    """A Conformer or Transformer encoder; `convolution` is None where a layer has none."""

    input_dim: int
    dim: int
    layers: int
    attention: AttentionConfig
    ffn_dim: int
    ffn_bias: bool
    activation: Activation
    macaron: bool
    convolution: ConvolutionConfig | None
    normalize_before: bool
    final_norm: bool
    front_end: str
    geometry: FrontEndGeometry


@dataclass(frozen=True)
class DecoderConfig:
    """An attention decoder for rescoring; `right_layers` is 0 for U2."""

    bidirectional: bool
    heads: int
    ffn_dim: int
    layers: int
    right_layers: int
    normalize_before: bool
    reverse_weight: float
    ctc_weight: float


@dataclass(frozen=True)
class ModelConfig:
    """What the engine needs to know of any model; architectures add their own."""

    architecture: str
    vocab_size: int
    blank_id: int
    streaming: bool
    """Whether it was trained for chunks."""
    static_chunk_size: int
    """The one chunk size it was trained for; 0 where any will do."""


@dataclass(frozen=True)
class WenetConfig(ModelConfig):
    """A WeNet U2 or U2++ model."""

    sos_id: int
    eos_id: int
    encoder: EncoderConfig
    decoder: DecoderConfig
    varied_history: bool = False
    """Whether it was trained with chunks of history left out."""

    @property
    def cache_spec(self) -> "CacheSpec":
        attention, convolution = self.encoder.attention, self.encoder.convolution
        return CacheSpec(
            layers=self.encoder.layers,
            key_heads=attention.key_heads,
            value_heads=attention.kv_heads,
            head_dim=attention.head_dim,
            bias_heads=attention.heads if attention.position == "rel_pos" else 0,
            convolution_history=convolution.history if convolution else 0,
        )


@dataclass(frozen=True)
class CacheSpec:
    """What a stream of a model keeps: pages of keys, values and key biases, and convolution histories."""

    layers: int
    key_heads: int
    value_heads: int
    head_dim: int
    bias_heads: int
    """Heads of the float32 bias per key; 0 where keys have none."""
    convolution_history: int
    """Frames per layer; 0 where there is none."""
    trained_window: int | None = None
    """Encoder frames before its chunk that attention was trained to see; None: as many as the engine is told to keep.

    With one, a stream's chunk size must divide the engine's.
    """

    def bytes_per_block(self, block_size: int, itemsize: int) -> int:
        """Bytes of `block_size` frames over all layers."""
        per_frame = (self.key_heads + self.value_heads) * self.head_dim * itemsize + 4 * self.bias_heads
        return self.layers * block_size * per_frame
