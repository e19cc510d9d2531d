"""Two passes: prefix beam search, then the attention decoder over its hypotheses (Zhang et al. 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
from torch import Tensor

from oasr_backend.decode.base import (
    DecodeSession,
    DecodeSetup,
    DecodeStrategy,
    Hypothesis,
    register_decode_strategy,
)
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.prefix_beam import PrefixBeamOptions, PrefixBeamSession, PrefixBeamStrategy
from oasr_backend.decode.scores import FrameScores
from oasr_backend.errors import ConfigError
from oasr_backend.utils.numbers import is_number


@dataclass(frozen=True)
class RescoringOptions(PrefixBeamOptions):
    """Knobs of both passes. Raises ConfigError for an impossible value."""

    ctc_weight: float | None = None
    """Weight of the first pass' score; None: the checkpoint's."""
    reverse_weight: float | None = None
    """Share of the right-to-left decoder; None: the checkpoint's."""
    max_rescored_seconds: float = 60.0
    """Encoder frames are kept so long; a longer segment keeps the first pass' result, with a warning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ctc_weight is not None and not (is_number(self.ctc_weight) and self.ctc_weight >= 0):
            raise ConfigError(f"ctc_weight is {self.ctc_weight!r}; it must be 0 or more")
        if self.reverse_weight is not None and not (is_number(self.reverse_weight) and 0 <= self.reverse_weight <= 1):
            raise ConfigError(f"reverse_weight is {self.reverse_weight!r}; it must be from 0 to 1")
        if not (is_number(self.max_rescored_seconds) and self.max_rescored_seconds > 0):
            raise ConfigError(f"max_rescored_seconds is {self.max_rescored_seconds!r}; it must be above 0")


@dataclass
class RescoringSession(DecodeSession):
    first: PrefixBeamSession
    frames: list[Tensor] = field(default_factory=list)
    too_long: bool = False
    final: list[Hypothesis] | None = None


@register_decode_strategy("attention_rescoring", RescoringOptions)
class RescoringStrategy(DecodeStrategy):
    """Partial results are the first pass'; final ones are ordered by both.

    total = (1 - r) log p(left to right) + r log p(right to left) + w (first pass' score)
    """

    biases = True

    def __init__(self, setup: DecodeSetup):
        if setup.rescorer is None:
            raise ConfigError("decode_method 'attention_rescoring' needs a checkpoint with an attention decoder")
        options: RescoringOptions = setup.options
        self._beam = PrefixBeamStrategy(setup)
        self._rescorer = setup.rescorer
        own = setup.rescorer.reverse_weight
        self._reverse_weight = own if options.reverse_weight is None else options.reverse_weight
        self._ctc_weight = setup.rescorer.ctc_weight if options.ctc_weight is None else options.ctc_weight
        self._max_seconds = options.max_rescored_seconds
        self._max_frames = int(round(options.max_rescored_seconds / setup.seconds_per_frame, 6))
        self.needs = replace(self._beam.needs, hidden=True)
        self.max_n_best = self._beam.max_n_best

    def open(self, hotwords: HotwordGraph | None = None) -> RescoringSession:
        return RescoringSession(self._beam.open(hotwords))

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        own = [cast(RescoringSession, session) for session in sessions]
        assert scores.hidden is not None
        self._beam.advance([session.first for session in own], scores, frames)
        for row, (session, count) in enumerate(zip(own, frames, strict=True)):
            session.frames_seen += count
            session.final = None
            session.too_long |= session.frames_seen > self._max_frames
            if session.too_long:
                session.frames.clear()
            elif count:
                # A copy: the batch it lies in must not be kept for it.
                session.frames.append(scores.hidden[row, :count].clone())

    def rewind(self, session: DecodeSession, frames: int) -> None:
        own = cast(RescoringSession, session)
        super().rewind(own, frames)
        self._beam.rewind(own.first, frames)
        if own.frames and frames:
            # In one piece, because the frames may lie in several.
            own.frames = [torch.cat(own.frames)[:-frames]]

    def best(self, session: DecodeSession) -> Hypothesis:
        return self._beam.best(cast(RescoringSession, session).first)

    def n_best(self, session: DecodeSession, count: int) -> list[Hypothesis]:
        own = cast(RescoringSession, session)
        if own.final is None:
            own.final = self._rescored(own)
        return own.final[:count]

    def _rescored(self, session: RescoringSession) -> list[Hypothesis]:
        first = self._beam.n_best(session.first, self._beam.max_n_best)
        if not session.frames:
            return first
        frames = torch.cat(session.frames)[None]
        second = self._rescorer.rescore(frames, [one.tokens for one in first], self._reverse_weight).tolist()
        scored = [replace(one, score=b + self._ctc_weight * one.score) for one, b in zip(first, second, strict=True)]
        # Stable: of equal scores the first pass' better one wins.
        return sorted(scored, key=lambda one: -one.score)

    def warnings(self, session: DecodeSession) -> tuple[str, ...]:
        if not cast(RescoringSession, session).too_long:
            return ()
        return (f"a segment of more than {self._max_seconds:g} s was not rescored; its text is the first pass'",)

    def close(self, session: DecodeSession) -> None:
        self._beam.close(cast(RescoringSession, session).first)
