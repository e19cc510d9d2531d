"""One frame of CTC prefix beam search (Graves et al. 2006; Hannun et al. 2014) over many streams at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oasr_backend.decode.beam_state import BeamState
from oasr_backend.decode.hotwords import BiasTables

# Odd, so that multiplying by it loses nothing modulo 2^64 (Knuth's multiplicative hashing).
_HASH_FACTOR = 6364136223846793005


@dataclass(frozen=True)
class FrameCut:
    """What the search sees of one frame of n streams.

    `tokens` [n, k] and `log_probs` [n, k] float64: the tokens considered, blank among the others; `frame` [n, 1] where
    the frame lies; `collapse` [n, 1] bool: frames of blank were passed over since the last one seen; `first_node`
    [n, 1] the id of the first trie node that this frame may make.
    """

    tokens: Tensor
    log_probs: Tensor
    frame: Tensor
    collapse: Tensor
    first_node: Tensor


@dataclass(frozen=True)
class NewNodes:
    """Trie nodes that a frame made, [n, beam]; token -1 where it made none. Peaks are those of the parents' tokens."""

    tokens: Tensor
    parents: Tensor
    peak_frames: Tensor
    peaks: Tensor


def advance_frame(
    state: BeamState, cut: FrameCut, blank_id: int, bias: BiasTables | None
) -> tuple[BeamState, NewNodes]:
    """The best prefixes after a frame, and what they are made of."""
    beam, none = state.blank.shape[1], float("-inf")
    total = torch.logaddexp(state.blank, state.token)
    # The better alignment of a prefix, whichever way it ends.
    by_token = state.token_best > state.blank_best
    best = torch.maximum(state.blank_best, state.token_best)
    node = torch.where(by_token, state.token_node, state.blank_node)
    peak_frame = torch.where(by_token, state.token_peak_frame, state.blank_peak_frame)
    peak = torch.where(by_token, state.token_peak, state.blank_peak)
    # After frames of blank every prefix ends in blank.
    before_blank = torch.where(cut.collapse, total, state.blank)
    before_token = torch.where(cut.collapse, none, state.token)
    before_blank_best = torch.where(cut.collapse, best, state.blank_best)
    before_token_best = torch.where(cut.collapse, none, state.token_best)
    blank_node = torch.where(cut.collapse, node, state.blank_node)
    blank_peak_frame = torch.where(cut.collapse, peak_frame, state.blank_peak_frame)
    blank_peak = torch.where(cut.collapse, peak, state.blank_peak)

    # Prefixes that stay as they are: by blank, or by their last token again.
    log_probs = cut.log_probs
    is_blank = cut.tokens == blank_id
    of_blank = log_probs.masked_fill(~is_blank, none).amax(1, keepdim=True)
    repeats = cut.tokens[:, None, :] == state.last[:, :, None]
    of_last = torch.where(repeats, log_probs[:, None, :], none).amax(2)
    stay_blank, stay_blank_best = total + of_blank, best + of_blank
    stay_token, stay_token_best = before_token + of_last, before_token_best + of_last
    is_peak = of_last > state.token_peak
    stay_peak_frame = torch.where(is_peak, cut.frame, state.token_peak_frame)
    stay_peak = torch.maximum(of_last, state.token_peak)

    # Prefixes that grow by a token; after the same token only where a blank was between.
    grow = torch.where(repeats, before_blank[:, :, None], total[:, :, None]) + log_probs[:, None, :]
    grow.masked_fill_(is_blank[:, None, :], none)
    grow_best = torch.where(repeats, before_blank_best[:, :, None], best[:, :, None]) + log_probs[:, None, :]
    grow_hash = state.hash[:, :, None] * _HASH_FACTOR + cut.tokens[:, None, :] + 1
    # Where one grows into another that is there already, the two are one.
    equal = (grow_hash.flatten(1)[:, :, None] == state.hash[:, None, :]) & (grow.flatten(1) > none)[:, :, None]
    merged, source = torch.where(equal, grow.flatten(1)[:, :, None], none).max(1)
    merged_best = grow_best.flatten(1).gather(1, source).masked_fill(merged == none, none)
    stay_token = torch.logaddexp(stay_token, merged)
    renewed = merged_best > stay_token_best
    grow = grow.flatten(1).masked_fill(equal.any(2), none)

    count = cut.tokens.shape[1]
    stay = torch.logaddexp(stay_blank, stay_token)
    bias_value, bias_state = state.bias, state.bias_state
    if bias is None:
        ranking = torch.cat((stay, grow), 1)
    else:
        gained, reached = bias.follow(state.bias_state, cut.tokens)
        grown_bias = (state.bias[:, :, None] + gained).flatten(1)
        ranking = torch.cat((stay + state.bias, grow + grown_bias), 1)
    chosen = ranking.topk(beam, 1).indices
    grown = chosen >= beam
    pick = torch.where(grown, chosen - beam, source.gather(1, chosen.clamp_max(beam - 1)))
    parent, column = pick // count, pick % count
    old = torch.where(grown, parent, chosen.clamp_max(beam - 1))

    def kept(values: Tensor) -> Tensor:
        return values.gather(1, old)

    is_new = grown | kept(renewed)
    # The parent's alignment that a new node continues: the one through blank when the token comes again.
    repeated = repeats.flatten(1).gather(1, pick)
    from_node = torch.where(repeated, blank_node.gather(1, parent), node.gather(1, parent))
    from_frame = torch.where(repeated, blank_peak_frame.gather(1, parent), peak_frame.gather(1, parent))
    from_peak = torch.where(repeated, blank_peak.gather(1, parent), peak.gather(1, parent))
    places = torch.arange(beam, device=chosen.device)[None, :]
    new_token = cut.tokens.gather(1, column)
    new_log_prob = log_probs.gather(1, column)
    if bias is not None:
        bias_value = torch.where(grown, grown_bias.gather(1, pick), kept(state.bias))
        bias_state = torch.where(grown, reached.flatten(1).gather(1, pick), kept(state.bias_state))
    token_best = torch.where(kept(renewed), kept(merged_best), kept(stay_token_best))
    after = BeamState(
        blank=kept(stay_blank).masked_fill(grown, none),
        token=torch.where(grown, grow.gather(1, pick), kept(stay_token)),
        blank_best=kept(stay_blank_best).masked_fill(grown, none),
        token_best=torch.where(grown, grow_best.flatten(1).gather(1, pick), token_best),
        blank_node=kept(node),
        token_node=torch.where(is_new, cut.first_node + places, kept(state.token_node)),
        blank_peak_frame=kept(peak_frame),
        token_peak_frame=torch.where(is_new, cut.frame, kept(stay_peak_frame)),
        blank_peak=kept(peak),
        token_peak=torch.where(is_new, new_log_prob, kept(stay_peak)),
        last=torch.where(grown, new_token, kept(state.last)),
        hash=torch.where(grown, grow_hash.flatten(1).gather(1, pick), kept(state.hash)),
        bias=bias_value,
        bias_state=bias_state,
    )
    # A prefix of no probability is none: it must equal no other.
    gone = torch.maximum(after.blank, after.token) == none
    after.hash.masked_fill_(gone, 0).sub_(places * gone)
    return after, NewNodes(new_token.masked_fill(~is_new, -1), from_node, from_frame, from_peak)
