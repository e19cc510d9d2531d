"""What a checkpoint says of its architecture, as plain numbers."""

from dataclasses import dataclass

from oasr_backend.models.geometry import FrontEndGeometry


@dataclass(frozen=True)
class EncoderConfig:
    """A Conformer encoder."""

    input_dim: int
    dim: int
    layers: int
    heads: int
    ffn_dim: int
    kernel: int
    causal: bool
    conv_norm: str
    front_end: str
    geometry: FrontEndGeometry

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


@dataclass(frozen=True)
class DecoderConfig:
    """An attention decoder for rescoring; `right_layers` is 0 for U2."""

    heads: int
    ffn_dim: int
    layers: int
    right_layers: int
    reverse_weight: float


@dataclass(frozen=True)
class ModelConfig:
    """A whole model: what the registry builds from."""

    architecture: str
    vocab_size: int
    blank_id: int
    sos_id: int
    eos_id: int
    encoder: EncoderConfig
    decoder: DecoderConfig
    streaming: bool
