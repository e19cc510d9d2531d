"""A Conformer with a CTC head, from a WeNet U2 or U2++ checkpoint."""

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache, ChunkPlan
from oasr_backend.cache.cnn_cache import ConvolutionCache
from oasr_backend.cache.stream_memory import StreamMemory
from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.decode.scores import FrameScores, Needs, score_frames
from oasr_backend.layers.linear import Linear
from oasr_backend.models.base import AsrModel, register_model
from oasr_backend.models.config import ModelConfig
from oasr_backend.models.conformer.encoder import ConformerEncoder
from oasr_backend.models.memory import ClipMemory, chunk_visibility


@register_model("conformer")
class ConformerCtc(AsrModel):
    """Encoder and CTC head. The attention decoder's weights are checked and left out until rescoring asks for them."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype):
        self.config = checkpoint.model
        encoder = self.config.encoder
        weights = WeightReader(checkpoint.state, str(checkpoint.path / "final.pt"))
        mean, istd = checkpoint.cmvn_mean, checkpoint.cmvn_istd
        if weights.has("encoder.global_cmvn.mean"):
            # The trained statistics travel with the weights and win over the file, as in WeNet.
            mean = weights.take("encoder.global_cmvn.mean", encoder.input_dim)
            istd = weights.take("encoder.global_cmvn.istd", encoder.input_dim)
        cmvn = None if mean is None or istd is None else (mean, istd)
        self._encoder = ConformerEncoder(weights, encoder, cmvn, device, dtype)
        self._head = Linear(
            weights.take("ctc.ctc_lo.weight", self.config.vocab_size, encoder.dim),
            weights.take("ctc.ctc_lo.bias", self.config.vocab_size),
            device,
            dtype,
        )
        check_decoder(weights, self.config)
        # Position tables are computed, never read.
        weights.ignore(name for name in weights.names("") if name.endswith(".pe"))
        weights.close()

    def encode_clips(self, features: Tensor, lengths: Tensor, chunk: int = -1, left_chunks: int = -1) -> Tensor:
        frames = self.config.encoder.geometry.frames_out(features.shape[1])
        visible = chunk_visibility(frames, chunk, left_chunks, features.device) if chunk > 0 else None
        memory = ClipMemory(
            lengths, frames, self._encoder.fresh_convolution_history, self.config.encoder.kernel, visible
        )
        positions = torch.arange(frames, device=features.device)[None, :]
        return self._encoder(features, positions, memory)

    def encode_chunk(
        self, features: Tensor, attention: AttentionCache, convolution: ConvolutionCache, plan: ChunkPlan
    ) -> Tensor:
        return self._encoder(features, plan.positions, StreamMemory(attention, convolution, plan))

    def score(self, hidden: Tensor, needs: Needs) -> FrameScores:
        return score_frames(self._head(hidden), hidden, needs, self.config.blank_id)

    def convolution_cache(self, slots: int) -> ConvolutionCache:
        return ConvolutionCache(self._encoder.fresh_convolution_history, self.config.encoder.kernel, slots)


def check_decoder(weights: WeightReader, config: ModelConfig) -> None:
    """Takes every weight of the attention decoder by name and shape."""
    decoder, dim, vocab = config.decoder, config.encoder.dim, config.vocab_size
    bidirectional = weights.has("decoder.left_decoder.after_norm.weight")
    sides = (("left_decoder.", decoder.layers), ("right_decoder.", decoder.right_layers))
    for side, layers in sides if bidirectional else (("", decoder.layers),):
        name = f"decoder.{side}"
        weights.take(f"{name}embed.0.weight", vocab, dim)
        weights.take(f"{name}output_layer.weight", vocab, dim)
        weights.take(f"{name}output_layer.bias", vocab)
        _take_norm(weights, f"{name}after_norm", dim)
        for index in range(layers):
            layer = f"{name}decoders.{index}"
            for attention in ("self_attn", "src_attn"):
                for part in ("linear_q", "linear_k", "linear_v", "linear_out"):
                    weights.take(f"{layer}.{attention}.{part}.weight", dim, dim)
                    weights.take(f"{layer}.{attention}.{part}.bias", dim)
            weights.take(f"{layer}.feed_forward.w_1.weight", decoder.ffn_dim, dim)
            weights.take(f"{layer}.feed_forward.w_1.bias", decoder.ffn_dim)
            weights.take(f"{layer}.feed_forward.w_2.weight", dim, decoder.ffn_dim)
            weights.take(f"{layer}.feed_forward.w_2.bias", dim)
            for norm in ("norm1", "norm2", "norm3"):
                _take_norm(weights, f"{layer}.{norm}", dim)


def _take_norm(weights: WeightReader, name: str, dim: int) -> None:
    weights.take(f"{name}.weight", dim)
    weights.take(f"{name}.bias", dim)
