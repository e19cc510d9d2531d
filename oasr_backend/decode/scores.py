"""What a decode strategy asks of the model's head, and what it gets."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from oasr_backend.utils.staging import ReadBack, to_device


@dataclass(frozen=True)
class Needs:
    """What is to be computed of a batch of frames; several may be asked for at once."""

    top_k: int = 0
    """The best tokens of a frame and the blank; the vocabulary-wide matrix is never kept."""
    gate: float = math.inf
    """Of frames whose blank has at least this log-probability (above log ½) only the blank is wanted."""
    log_probs: bool = False
    """The whole matrix of log-probabilities."""
    hidden: bool = False
    """The encoder's frames, for strategies with a model of their own."""

    @classmethod
    def union(cls, needs: Iterable["Needs"]) -> "Needs":
        """What serves all."""
        all_needs = list(needs)
        return cls(
            top_k=max((one.top_k for one in all_needs), default=0),
            # The best token of a frame that is gated is its blank, whoever asks.
            gate=max([math.log(0.5), *(one.gate for one in all_needs if one.top_k > 1)])
            if any(one.top_k > 1 for one in all_needs)
            else math.log(0.98),
            log_probs=any(one.log_probs for one in all_needs),
            hidden=any(one.hidden for one in all_needs),
        )


@dataclass(frozen=True)
class FrameScores:
    """Scores of a batch of frames, on the host (once `wait` was called) but for `hidden`. Only what was asked for is
    there.

    `tokens` [B, n, k] int64 and `log_probs` [B, n, k] float32, best first (of a gated frame the blank, then -inf);
    `blank` [B, n] float32; `full` [B, n, vocabulary] float32; `hidden` [B, n, dim].
    """

    tokens: Tensor | None = None
    log_probs: Tensor | None = None
    blank: Tensor | None = None
    full: Tensor | None = None
    hidden: Tensor | None = None
    ready: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Returns when the host's copies are whole; None: they are."""

    def wait(self) -> None:
        """Returns when the host's copies are whole: before that they hold anything."""
        if self.ready is not None:
            self.ready()

    def unpacked(self, frames: Sequence[int]) -> "FrameScores":
        """Scores of one packed row of clips, [1, Σ frames, ...], as [B, max frames, ...], zeros behind each clip."""
        longest = max(frames, default=0)
        valid = np.arange(longest) < np.asarray(frames)[:, None]
        places = np.flatnonzero(valid)

        def spread(packed: Tensor) -> Tensor:
            padded = packed.new_zeros(valid.size, *packed.shape[2:])
            padded.index_copy_(0, to_device(places, packed.device), packed[0])
            return padded.unflatten(0, valid.shape)

        return self._each(spread)

    @classmethod
    def joined(cls, parts: Sequence["FrameScores"], dim: int = 0) -> "FrameScores":
        """Scores of batches (or, for `dim` 1, of stretches of frames) one behind the other."""
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            part.wait()
        tokens, log_probs, blank, full, hidden = (
            None if values[0] is None else torch.cat(values, dim) for values in zip(*(part._parts for part in parts))
        )
        return cls(tokens, log_probs, blank, full, hidden)

    def rows(self, index: Sequence[int]) -> "FrameScores":
        """Scores of some of the batch."""
        if list(index) == list(range(self._batch)):
            return self
        return self._each(lambda part: part[list(index)])

    def part(self, row: int, first: int) -> "FrameScores":
        """Scores of one row from frame `first` on, as a batch of one."""
        return self._each(lambda part: part[row : row + 1, first:])

    @property
    def _batch(self) -> int:
        return next((part.shape[0] for part in self._parts if part is not None), 0)

    @property
    def _parts(self) -> tuple[Tensor | None, ...]:
        return self.tokens, self.log_probs, self.blank, self.full, self.hidden

    def _each(self, change: Callable[[Tensor], Tensor]) -> "FrameScores":
        self.wait()
        tokens, log_probs, blank, full, hidden = (None if part is None else change(part) for part in self._parts)
        return FrameScores(tokens, log_probs, blank, full, hidden)


def log_sum_exp(logits: Tensor) -> Tensor:
    """[..., V] -> [..., 1] float32, summed in float32 without a float32 copy of the logits."""
    peak = logits.amax(-1, keepdim=True)
    return peak.float() + (logits - peak).exp_().sum(-1, keepdim=True, dtype=torch.float32).log_()


def score_frames(logits: Tensor, hidden: Tensor, needs: Needs, blank_id: int) -> FrameScores:
    """`logits` [B, n, V] and `hidden` [B, n, dim] to what `needs` names; log p = logit - log Σ exp(logit)."""
    tokens = log_probs = blank = full = None
    read = ReadBack(logits.device)
    if needs.top_k or needs.log_probs:
        normaliser = log_sum_exp(logits)
    if needs.top_k:
        of_blank = logits[..., blank_id].float() - normaliser[..., 0]
        blank = read(of_blank)
        tokens, log_probs = map(read, _best(logits, normaliser, of_blank, needs, blank_id))
    if needs.log_probs:
        full = read(logits.float() - normaliser)
    return FrameScores(tokens, log_probs, blank, full, hidden if needs.hidden else None, read.queued())


def _best(logits: Tensor, normaliser: Tensor, of_blank: Tensor, needs: Needs, blank_id: int) -> tuple[Tensor, Tensor]:
    """Tokens [B, n, k] and log-probabilities [B, n, k]."""
    if needs.top_k == 1:
        best = logits.max(-1, keepdim=True)
        return best.indices, best.values.float() - normaliser
    tokens = torch.full((*of_blank.shape, needs.top_k), blank_id, dtype=torch.int64, device=logits.device)
    log_probs = torch.full(tokens.shape, -math.inf, device=logits.device)
    log_probs[..., 0] = of_blank
    # Frames that are gated are most, and looking for their best tokens is most of the work.
    wanted = (of_blank < needs.gate).nonzero(as_tuple=True)
    if wanted[0].numel():
        values, indices = top_k(logits[wanted], needs.top_k)
        tokens[wanted] = indices
        log_probs[wanted] = values.float() - normaliser[wanted]
    return tokens, log_probs


def top_k(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`logits` [n, V] -> the k best values and their indices, [n, k], best first.

    The k best lie in the k blocks with the largest maxima, so only those are sorted.
    """
    rows, vocabulary = logits.shape
    block = 64
    blocks = vocabulary // block
    if blocks < 4 * k:
        return tuple(logits.topk(k, dim=-1))  # type: ignore[return-value]
    whole = logits[:, : blocks * block].view(rows, blocks, block)
    chosen = whole.amax(-1).topk(k, dim=-1).indices
    candidates = whole.gather(1, chosen[:, :, None].expand(-1, -1, block)).flatten(1)
    index = (chosen[:, :, None] * block + torch.arange(block, device=logits.device)).flatten(1)
    rest = torch.arange(blocks * block, vocabulary, device=logits.device).expand(rows, -1)
    candidates = torch.cat((candidates, logits[:, blocks * block :]), dim=1)
    index = torch.cat((index, rest), dim=1)
    best = candidates.topk(k, dim=-1)
    return best.values, index.gather(1, best.indices)
