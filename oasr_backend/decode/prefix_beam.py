"""CTC prefix beam search over all streams at once."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from oasr_backend.decode.base import (
    DecodeSession,
    DecodeSetup,
    DecodeStrategy,
    Hypothesis,
    register_decode_strategy,
)
from oasr_backend.decode.beam_state import BeamState
from oasr_backend.decode.beam_step import FrameCut, advance_frame
from oasr_backend.decode.hotwords import BiasTables, HotwordGraph
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.decode.token_trie import ROOT, TokenTrie
from oasr_backend.errors import ConfigError
from oasr_backend.utils.numbers import is_number

_FIRST_SLOTS = 8
# A trie of so many nodes is freed of what no prefix needs any more.
_COMPACT_NODES = 1 << 14


@dataclass(frozen=True)
class PrefixBeamOptions:
    """Knobs of the search. Raises ConfigError for an impossible value."""

    beam_size: int = 10
    """Prefixes kept."""
    token_top_k: int | None = None
    """Tokens considered a frame, blank among the others; None: `beam_size`, as WeNet has it."""
    blank_threshold: float = 0.98
    """Frames whose blank is at least so probable are passed over; 1 passes over none."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "token_top_k"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least 1")
        if not (is_number(self.blank_threshold) and 0 < self.blank_threshold <= 1):
            raise ConfigError(f"blank_threshold is {self.blank_threshold!r}; it must be above 0 and at most 1")


@dataclass
class PrefixBeamSession(DecodeSession):
    slot: int = 0
    hotwords: HotwordGraph | None = None
    trie: TokenTrie = field(default_factory=TokenTrie)
    passed_over: bool = False
    """Whether frames were passed over since the last one seen."""
    # The best prefix when it was last asked for: its nodes from the root, and what is known of their tokens.
    nodes: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)


@register_decode_strategy("ctc_prefix_beam", PrefixBeamOptions)
class PrefixBeamStrategy(DecodeStrategy):
    """Keeps the beams of all sessions in the rows of one state."""

    biases = True

    def __init__(self, setup: DecodeSetup):
        options: PrefixBeamOptions = setup.options
        self._blank = setup.blank_id
        self._vocab_size = vocab_size = setup.vocab_size
        self._beam = options.beam_size
        # No more tokens than there are.
        top_k = min(options.token_top_k or options.beam_size, vocab_size)
        self._threshold = math.log(options.blank_threshold) if options.blank_threshold < 1 else math.inf
        # Below one half a blank need not be the best token, so there nothing can be left out beforehand.
        self.needs = Needs(top_k=top_k, gate=max(self._threshold, math.log(0.5)))
        self.max_n_best = options.beam_size
        self._device = torch.device("cpu")
        self._state = BeamState.empty(_FIRST_SLOTS, self._beam, self._device)
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))

    def open(self, hotwords: HotwordGraph | None = None) -> PrefixBeamSession:
        if not self._free:
            slots = self._state.blank.shape[0]
            self._state = self._state.grown(2 * slots)
            self._free = list(range(2 * slots - 1, slots - 1, -1))
        slot = self._free.pop()
        self._state.reset([slot])
        return PrefixBeamSession(slot=slot, hotwords=hotwords)

    def close(self, session: DecodeSession) -> None:
        self._free.append(cast(PrefixBeamSession, session).slot)

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        assert scores.tokens is not None and scores.log_probs is not None and scores.blank is not None
        if not sessions:
            return
        own = [cast(PrefixBeamSession, session) for session in sessions]
        blank = scores.blank.numpy()
        length = np.array(frames, dtype=np.int64)
        seen = (np.arange(blank.shape[1]) < length[:, None]) & (blank < self._threshold)
        counts = seen.sum(1)
        # Streams with more frames to see come first, so that those that are through drop off the end.
        order = np.argsort(-counts, kind="stable")
        order = order[: int((counts > 0).sum())]
        if len(order):
            self._search([own[row] for row in order], scores, seen[order], torch.from_numpy(order))
        for session, row_seen, count in zip(own, seen, frames, strict=True):
            if count:
                session.passed_over = not row_seen[count - 1]
            session.frames_seen += count

    def _search(self, sessions: list[PrefixBeamSession], scores: FrameScores, seen: np.ndarray, rows: Tensor) -> None:
        """Feeds the frames that are `seen` [n, frames] to sessions, those with more of them first."""
        assert scores.tokens is not None and scores.log_probs is not None
        counts = seen.sum(1)
        most = int(counts[0])
        # Positions of the frames seen, in order, in front.
        position = np.argsort(~seen, axis=1, kind="stable")[:, :most]
        before = np.concatenate((np.full((len(seen), 1), -1), position[:, :-1]), axis=1)
        gap = position - before > 1
        gap[:, 0] |= np.array([session.passed_over for session in sessions])
        frame = torch.from_numpy(position + np.array([session.frames_seen for session in sessions])[:, None])
        collapse = torch.from_numpy(gap)
        # Scores may hold more for another strategy's sake.
        index = torch.from_numpy(position)[:, :, None].expand(-1, -1, self.needs.top_k)
        tokens = scores.tokens.index_select(0, rows).gather(1, index)
        log_probs = scores.log_probs.index_select(0, rows).gather(1, index).double()
        first_node = torch.tensor([session.trie.count for session in sessions])[:, None]
        slots = torch.tensor([session.slot for session in sessions])
        bias = None
        if any(session.hotwords is not None for session in sessions):
            bias = BiasTables([session.hotwords for session in sessions], self._vocab_size, self._device)
        record = [np.zeros((most, len(sessions), self._beam), dtype=kind) for kind in (int, int, int, float)]
        state = self._state.rows(slots)
        active = len(sessions)
        for turn in range(most):
            still = int((counts > turn).sum())
            if still < active:
                self._state.write(slots[still:active], state.last_rows(still))
                state, bias = state.first(still), bias.first(still) if bias is not None else None
                active = still
            cut = FrameCut(
                tokens[:active, turn],
                log_probs[:active, turn],
                frame[:active, turn, None],
                collapse[:active, turn, None],
                first_node[:active] + turn * self._beam,
            )
            state, nodes = advance_frame(state, cut, self._blank, bias)
            made = (nodes.tokens, nodes.parents, nodes.peak_frames, nodes.peaks)
            for array, tensor in zip(record, made, strict=True):
                array[turn, :active] = tensor.numpy()
        self._state.write(slots[:active], state)
        record[3] = np.exp(record[3])
        for row, (session, count) in enumerate(zip(sessions, counts, strict=True)):
            session.trie.append(*(array[:count, row].reshape(-1) for array in record))
            if session.trie.count > _COMPACT_NODES:
                self._compact(session)

    def _compact(self, session: PrefixBeamSession) -> None:
        state, slot = self._state, session.slot
        leaves = torch.cat((state.blank_node[slot], state.token_node[slot])).numpy()
        renamed = torch.from_numpy(session.trie.compact(leaves))
        state.blank_node[slot], state.token_node[slot] = renamed[: self._beam], renamed[self._beam :]
        session.nodes.clear()
        session.places.clear()

    def best(self, session: DecodeSession) -> Hypothesis:
        own = cast(PrefixBeamSession, session)
        node, frame, confidence = self._end(own, 0)
        self._follow_best(own, node)
        if own.tokens:
            own.frames[-1], own.confidences[-1] = frame, confidence
        return Hypothesis(tuple(own.tokens), tuple(own.frames), tuple(own.confidences), self._score(own, 0))

    def n_best(self, session: DecodeSession, count: int) -> list[Hypothesis]:
        own = cast(PrefixBeamSession, session)
        found = [self.best(session)]
        for place in range(1, min(count, self._beam)):
            score = self._score(own, place)
            if score == -math.inf:
                break
            node, frame, confidence = self._end(own, place)
            path = own.trie.path(node)[::-1]
            peaks = [own.trie.parent_peak(child) for child in path[1:]]
            peaks += [(frame, confidence)] if path else []
            tokens = tuple(map(own.trie.token, path))
            found.append(Hypothesis(tokens, tuple(p[0] for p in peaks), tuple(p[1] for p in peaks), score))
        return found

    def _score(self, session: PrefixBeamSession, place: int) -> float:
        state, at = self._state, (session.slot, place)
        return float(torch.logaddexp(state.blank[at], state.token[at]) + state.bias[at])

    def _end(self, session: PrefixBeamSession, place: int) -> tuple[int, int, float]:
        """The node in which a prefix ends on its best alignment, and the peak of its last token."""
        state, at = self._state, (session.slot, place)
        if state.token_best[at] > state.blank_best[at]:
            parts = state.token_node[at], state.token_peak_frame[at], state.token_peak[at]
        else:
            parts = state.blank_node[at], state.blank_peak_frame[at], state.blank_peak[at]
        return int(parts[0]), int(parts[1]), math.exp(float(parts[2]))

    def _follow_best(self, session: PrefixBeamSession, node: int) -> None:
        """Brings the session's record of the best prefix up to date, reusing what it shares with the last one."""
        fresh: list[int] = []
        while node != ROOT and node not in session.places:
            fresh.append(node)
            node = session.trie.parent(node)
        shared = session.places[node] + 1 if node != ROOT else 0
        for dropped in session.nodes[shared:]:
            del session.places[dropped]
        for values in (session.nodes, session.tokens, session.frames, session.confidences):
            del values[shared:]
        for new in reversed(fresh):
            frame, confidence = session.trie.parent_peak(new)
            if session.frames:
                session.frames[-1], session.confidences[-1] = frame, confidence
            session.places[new] = len(session.nodes)
            session.nodes.append(new)
            session.tokens.append(session.trie.token(new))
            session.frames.append(0)
            session.confidences.append(0.0)
