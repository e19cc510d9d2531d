"""What a decode strategy asks of the model's head, and what it gets."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class TopK:
    """The k best tokens of a frame and the blank; the vocabulary-wide matrix is never kept."""

    k: int


@dataclass(frozen=True)
class LogProbs:
    """The whole matrix of log-probabilities."""


@dataclass(frozen=True)
class Hidden:
    """The encoder's frames, for families with a head of their own."""


Needs = TopK | LogProbs | Hidden


@dataclass(frozen=True)
class FrameScores:
    """Scores of a batch of frames, on the host. Only what was asked for is there.

    `tokens` [B, n, k] int64 and `log_probs` [B, n, k] float32, best first; `blank` [B, n] float32;
    `full` [B, n, vocabulary] float32; `hidden` [B, n, dim].
    """

    tokens: Tensor | None = None
    log_probs: Tensor | None = None
    blank: Tensor | None = None
    full: Tensor | None = None
    hidden: Tensor | None = None

    def unpacked(self, frames: Sequence[int]) -> "FrameScores":
        """Scores of one packed row of clips, [1, Σ frames, ...], as [B, max frames, ...], zeros behind each clip."""
        index = torch.arange(max(frames, default=0))[None, :].lt(torch.tensor(frames)[:, None])

        def spread(packed: Tensor | None) -> Tensor | None:
            if packed is None:
                return None
            padded = packed.new_zeros(*index.shape, *packed.shape[2:])
            padded[index.to(packed.device)] = packed[0]
            return padded

        return FrameScores(*(spread(getattr(self, field.name)) for field in fields(self)))


def log_sum_exp(logits: Tensor) -> Tensor:
    """[..., V] -> [..., 1] float32, summed in float32 without a float32 copy of the logits."""
    peak = logits.amax(-1, keepdim=True)
    return peak.float() + (logits - peak).exp_().sum(-1, keepdim=True, dtype=torch.float32).log_()


def score_frames(logits: Tensor, hidden: Tensor, needs: Needs, blank_id: int) -> FrameScores:
    """`logits` [B, n, V] and `hidden` [B, n, dim] to what `needs` names; log p = logit - log Σ exp(logit)."""
    match needs:
        case TopK(k):
            normaliser = log_sum_exp(logits)
            best = logits.max(-1, keepdim=True) if k == 1 else logits.topk(k, dim=-1)
            return FrameScores(
                tokens=best.indices.cpu(),
                log_probs=(best.values.float() - normaliser).cpu(),
                blank=(logits[..., blank_id].float() - normaliser[..., 0]).cpu(),
            )
        case LogProbs():
            return FrameScores(full=(logits.float() - log_sum_exp(logits)).cpu())
        case Hidden():
            return FrameScores(hidden=hidden)
