"""An encoder with a CTC head and an attention decoder, from a WeNet U2 or U2++ checkpoint."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.decode.scores import FrameScores, Needs, score_frames
from oasr_backend.errors import CheckpointError
from oasr_backend.layers.product import make_product
from oasr_backend.models.base import AsrModel
from oasr_backend.models.config import WenetConfig
from oasr_backend.models.decoder import RescoringDecoder
from oasr_backend.models.encoder import Encoder, EncoderMemory, LayerFactory
from oasr_backend.models.memory import ClipMemory, PackedMemory, chunk_visibility
from oasr_backend.quantization.rule import QuantizationRule


class WenetModel(AsrModel):
    """The model of any encoder whose layers `make_layer` builds."""

    def __init__(self, checkpoint: Checkpoint, make_layer: LayerFactory, device: torch.device, dtype: torch.dtype):
        if not isinstance(checkpoint.model, WenetConfig):
            raise CheckpointError(f"architecture {checkpoint.model.architecture!r} needs a WeNet configuration")
        self.config: WenetConfig = checkpoint.model
        encoder = self.config.encoder
        self.geometry = encoder.geometry
        self.feature_dim = encoder.input_dim
        self.cache_spec = self.config.cache_spec
        source = f"{checkpoint.path.name}/{checkpoint.weights_name}"
        weights = WeightReader(checkpoint.state, source, QuantizationRule.of(checkpoint.quantization))
        self._encoder = Encoder(
            weights, encoder, make_layer, _cmvn(weights, checkpoint, encoder.input_dim), device, dtype
        )
        self._head = make_product(
            weights.take("ctc.ctc_lo.weight", self.config.vocab_size, encoder.dim),
            weights.take("ctc.ctc_lo.bias", self.config.vocab_size),
            device,
            dtype,
            quantized=weights.quantization.covers("ctc.ctc_lo"),
        )
        self.rescorer = self.decoder = RescoringDecoder(weights, self.config, device, dtype)
        # Position tables are computed, never read.
        weights.ignore(name for name in weights.names("") if name.endswith(".pe"))
        weights.close()

    @property
    def fresh_convolution_history(self) -> Tensor | None:
        return self._encoder.fresh_convolution_history if self.cache_spec.convolution_history else None

    def encode_clips(self, features: Tensor, lengths: Tensor, chunk: int = -1, left_chunks: int = -1) -> Tensor:
        frames = self.geometry.frames_out(features.shape[1])
        visible = chunk_visibility(frames, chunk, left_chunks, features.device) if chunk > 0 else None
        memory = ClipMemory(lengths, frames, self._encoder.fresh_convolution_history, visible)
        positions = torch.arange(frames, device=features.device)[None, :]
        return self._encoder(features, positions, memory)

    def encode_packed(self, features: Tensor, kept: Tensor, lengths: Sequence[int]) -> Tensor:
        memory = PackedMemory(lengths, self._encoder.fresh_convolution_history, features.device)
        positions = torch.cat([torch.arange(length, device=features.device) for length in lengths])[None, :]
        return self._encoder.encode(self._encoder.embed(features)[:, kept], positions, memory)

    def encode_chunk(self, features: Tensor, positions: Tensor, memory: EncoderMemory) -> Tensor:
        return self._encoder(features, positions, memory)

    def score(self, hidden: Tensor, needs: Needs) -> FrameScores:
        return score_frames(self._head(hidden), hidden, needs, self.config.blank_id)


def _cmvn(weights: WeightReader, checkpoint: Checkpoint, dim: int) -> tuple[Tensor, Tensor] | None:
    """The trained statistics travel with the weights and win over the file, as in WeNet."""
    if weights.has("encoder.global_cmvn.mean"):
        return weights.take("encoder.global_cmvn.mean", dim), weights.take("encoder.global_cmvn.istd", dim)
    if checkpoint.cmvn_mean is None or checkpoint.cmvn_istd is None:
        return None
    return checkpoint.cmvn_mean, checkpoint.cmvn_istd
