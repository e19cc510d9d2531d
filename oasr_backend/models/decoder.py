"""The attention decoder of U2 and U2++ checkpoints: every weight checked, kept for rescoring."""

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.models.config import WenetConfig


def take_decoder(weights: WeightReader, config: WenetConfig) -> None:
    """Accounts for every weight of the decoder by name and shape."""
    decoder, dim, vocab = config.decoder, config.encoder.dim, config.vocab_size
    sides = (("left_decoder.", decoder.layers), ("right_decoder.", decoder.right_layers))
    for side, layers in sides if decoder.bidirectional else (("", decoder.layers),):
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
            # Written by WeNet before 2022-05 even where nothing uses them.
            weights.ignore(weights.names(f"{layer}.concat_linear"))


def _take_norm(weights: WeightReader, name: str, dim: int) -> None:
    weights.take(f"{name}.weight", dim)
    weights.take(f"{name}.bias", dim)
