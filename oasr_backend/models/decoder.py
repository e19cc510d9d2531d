"""The attention decoder of U2 and U2++ models, for rescoring: it scores whole hypotheses, never generates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.layers.attention import MASKED, scaled_dot_product
from oasr_backend.layers.feed_forward import FeedForward
from oasr_backend.layers.norm import LayerNorm
from oasr_backend.layers.positional import SinusoidalPosition
from oasr_backend.layers.product import Product, make_product
from oasr_backend.models.config import DecoderConfig, WenetConfig
from oasr_backend.utils.staging import to_device


@dataclass(frozen=True)
class HypothesisScores:
    """Log-probabilities of each hypothesis with its end, [N] float32; `right` is None for U2."""

    left: Tensor
    right: Tensor | None


class _Attention:
    """Attention of a decoder layer: over the tokens so far, or over the encoder's frames."""

    def __init__(
        self, weights: WeightReader, name: str, dim: int, heads: int, device: torch.device, dtype: torch.dtype
    ):
        self._heads = heads

        def linear(part: str) -> Product:
            return make_product(
                weights.take(f"{name}.{part}.weight", dim, dim),
                weights.take(f"{name}.{part}.bias", dim),
                device,
                dtype,
                quantized=weights.quantization.covers(f"{name}.{part}"),
            )

        self._query, self._key, self._value, self._out = map(linear, ("linear_q", "linear_k", "linear_v", "linear_out"))

    def __call__(self, x: Tensor, source: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
        """`x` [N, L, dim] over `source` [N or 1, S, dim], `bias` [1, 1, L or 1, S] -> [N, L, dim]."""
        query, key, value = (
            part.unflatten(-1, (self._heads, -1)) for part in (self._query(x), self._key(source), self._value(source))
        )
        rows = (x.shape[0], -1, -1, -1)
        return self._out(scaled_dot_product(query, key.expand(rows), value.expand(rows), bias), residual)


class _DecoderLayer:
    def __init__(
        self,
        weights: WeightReader,
        name: str,
        dim: int,
        config: DecoderConfig,
        device: torch.device,
        dtype: torch.dtype,
    ):
        self._before = config.normalize_before
        self._self_attention = _Attention(weights, f"{name}.self_attn", dim, config.heads, device, dtype)
        self._source_attention = _Attention(weights, f"{name}.src_attn", dim, config.heads, device, dtype)
        self._feed_forward = FeedForward(weights, f"{name}.feed_forward", dim, config.ffn_dim, device, dtype, "relu")
        self._norms = [LayerNorm(weights, f"{name}.norm{index}", dim, device, dtype) for index in (1, 2, 3)]
        # Written by WeNet before 2022-05 even where nothing uses them.
        weights.ignore(weights.names(f"{name}.concat_linear"))

    def __call__(self, x: Tensor, source: Tensor, causal: Tensor) -> Tensor:
        everything = causal.new_zeros(1, 1, 1, source.shape[1])
        modules: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
            lambda y, base: self._self_attention(y, y, causal, base),
            lambda y, base: self._source_attention(y, source, everything, base),
            self._feed_forward,
        )
        for module, norm in zip(modules, self._norms, strict=True):
            x = module(norm(x), x) if self._before else norm(module(x, x))
        return x


class TokenDecoder:
    """One direction: log p(token | tokens before it, encoder frames)."""

    def __init__(
        self,
        weights: WeightReader,
        name: str,
        layers: int,
        config: WenetConfig,
        device: torch.device,
        dtype: torch.dtype,
    ):
        dim, vocab, decoder = config.encoder.dim, config.vocab_size, config.decoder
        self._embedding = (weights.take(f"{name}embed.0.weight", vocab, dim) * dim**0.5).to(device, dtype)
        self._position = SinusoidalPosition(dim, device)
        self._layers = [
            _DecoderLayer(weights, f"{name}decoders.{index}", dim, decoder, device, dtype) for index in range(layers)
        ]
        self._after_norm: LayerNorm | None = None
        if decoder.normalize_before:
            self._after_norm = LayerNorm(weights, f"{name}after_norm", dim, device, dtype)
        else:
            # WeNet makes the layer in any case and leaves it unused.
            weights.ignore(weights.names(f"{name}after_norm."))
        self._head = make_product(
            weights.take(f"{name}output_layer.weight", vocab, dim),
            weights.take(f"{name}output_layer.bias", vocab),
            device,
            dtype,
            quantized=weights.quantization.covers(f"{name}output_layer"),
        )
        self._sos, self._eos = config.sos_id, config.eos_id

    def score(self, frames: Tensor, hypotheses: Sequence[Sequence[int]]) -> Tensor:
        """`frames` [1, T, dim] -> the log-probability of each hypothesis and its end: [N] float32."""
        longest = max(len(tokens) + 1 for tokens in hypotheses)
        given = np.full((len(hypotheses), longest), self._eos, dtype=np.int64)
        wanted, is_padding = given.copy(), np.ones(given.shape, dtype=np.bool_)
        for row, tokens in enumerate(hypotheses):
            given[row, 0] = self._sos
            given[row, 1 : len(tokens) + 1] = tokens
            wanted[row, : len(tokens)] = tokens
            is_padding[row, : len(tokens) + 1] = False
        log_probs = self._logits(frames, to_device(given, frames.device)).float().log_softmax(-1)
        taken = log_probs.gather(-1, to_device(wanted, frames.device)[..., None])[..., 0]
        # Padding comes last, so causality alone keeps it out of the sums' terms.
        return taken.masked_fill(to_device(is_padding, frames.device), 0.0).sum(-1)

    def _logits(self, frames: Tensor, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        index = torch.arange(length, device=tokens.device)
        causal = ((index[None, :] > index[:, None]) * MASKED)[None, None]
        x = self._embedding[tokens] + self._position(index).to(self._embedding.dtype)
        for layer in self._layers:
            x = layer(x, frames, causal)
        return self._head(x if self._after_norm is None else self._after_norm(x))


class RescoringDecoder:
    """Left to right, and for U2++ right to left as well."""

    def __init__(self, weights: WeightReader, config: WenetConfig, device: torch.device, dtype: torch.dtype):
        decoder = config.decoder
        prefix = "decoder.left_decoder." if decoder.bidirectional else "decoder."
        self.reverse_weight = decoder.reverse_weight if decoder.bidirectional else 0.0
        self.ctc_weight = decoder.ctc_weight
        self._left = TokenDecoder(weights, prefix, decoder.layers, config, device, dtype)
        self._right: TokenDecoder | None = None
        if decoder.bidirectional:
            self._right = TokenDecoder(weights, "decoder.right_decoder.", decoder.right_layers, config, device, dtype)

    def rescore(self, frames: Tensor, hypotheses: Sequence[Sequence[int]], reverse_weight: float) -> Tensor:
        """`frames` [1, T, dim] -> (1 - r) left + r right for `reverse_weight` r: [N] float32."""
        left = self._left.score(frames, hypotheses)
        if self._right is None or reverse_weight == 0:
            return left
        right = self._right.score(frames, [tokens[::-1] for tokens in hypotheses])
        return (1 - reverse_weight) * left + reverse_weight * right

    def score(self, frames: Tensor, hypotheses: Sequence[Sequence[int]]) -> HypothesisScores:
        """`frames` [1, T, dim] of one clip or segment; token ids without sos and eos."""
        right = None
        if self._right is not None:
            right = self._right.score(frames, [tokens[::-1] for tokens in hypotheses])
        return HypothesisScores(self._left.score(frames, hypotheses), right)
