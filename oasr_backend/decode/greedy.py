"""CTC best path: the best token of every frame, repeats collapsed, blanks dropped."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from oasr_backend.decode.base import (
    DecodeSession,
    DecodeSetup,
    DecodeStrategy,
    Hypothesis,
    register_decode_strategy,
)
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.scores import FrameScores, Needs


@dataclass
class GreedySession(DecodeSession):
    last: int = -1
    score: float = 0.0
    tokens: list[int] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)


@register_decode_strategy("ctc_greedy")
class GreedyStrategy(DecodeStrategy):
    """A token's time is the frame of its highest posterior within its run; a run may go on in the next chunk."""

    def __init__(self, setup: DecodeSetup):
        self._blank = setup.blank_id
        self.needs = Needs(top_k=1)

    def open(self, hotwords: HotwordGraph | None = None) -> GreedySession:
        return GreedySession()

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        assert scores.tokens is not None and scores.log_probs is not None
        best = scores.tokens[..., 0].tolist()
        log_probs = scores.log_probs[..., 0].tolist()
        for session, tokens, values, count in zip(sessions, best, log_probs, frames, strict=True):
            self._advance_one(cast(GreedySession, session), tokens[:count], values[:count])

    def _advance_one(self, session: GreedySession, tokens: list[int], log_probs: list[float]) -> None:
        for frame, (token, log_prob) in enumerate(zip(tokens, log_probs, strict=True), session.frames_seen):
            session.score += log_prob
            if token == self._blank:
                session.last = token
            elif token != session.last:
                session.last = token
                session.tokens.append(token)
                session.frames.append(frame)
                session.confidences.append(math.exp(log_prob))
            elif (confidence := math.exp(log_prob)) > session.confidences[-1]:
                session.frames[-1] = frame
                session.confidences[-1] = confidence
        session.frames_seen += len(tokens)

    def best(self, session: DecodeSession) -> Hypothesis:
        own = cast(GreedySession, session)
        return Hypothesis(
            tokens=tuple(own.tokens),
            frames=tuple(own.frames),
            confidences=tuple(own.confidences),
            score=own.score,
        )
