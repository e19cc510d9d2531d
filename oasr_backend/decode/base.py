"""The decode strategy interface and its registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import ConfigError


@dataclass(frozen=True)
class Hypothesis:
    """One decoded token sequence.

    `frames` holds the peak frame of every token (counted from the start of the stream), `confidences` the posterior
    there; `score` is the natural logarithm of the hypothesis' probability.
    """

    tokens: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    score: float = 0.0


@dataclass
class DecodeSession:
    """What a strategy remembers of one stream or clip; strategies derive their own."""

    frames_seen: int = field(default=0, init=False)


class DecodeStrategy(ABC):
    """Turns frame scores into hypotheses, chunk by chunk; offline is the case of one chunk."""

    needs: Needs
    max_n_best: int = 1
    """Most hypotheses that `n_best` can give."""
    times_tokens: bool = True
    """Whether hypotheses carry frames."""

    @abstractmethod
    def open(self) -> DecodeSession: ...

    @abstractmethod
    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        """Feeds row b's first `frames[b]` frames to session b."""

    @abstractmethod
    def best(self, session: DecodeSession) -> Hypothesis: ...

    def n_best(self, session: DecodeSession, count: int) -> list[Hypothesis]:
        return [self.best(session)][:count]

    def close(self, session: DecodeSession) -> None:  # noqa: B027 (most strategies hold nothing)
        """Returns what the session holds; called once, when its stream ends."""


STRATEGIES: dict[str, Callable[[int], DecodeStrategy]] = {}


def register_decode_strategy(
    name: str,
) -> Callable[[Callable[[int], DecodeStrategy]], Callable[[int], DecodeStrategy]]:
    """Registers a builder that takes the blank's id."""

    def register(build: Callable[[int], DecodeStrategy]) -> Callable[[int], DecodeStrategy]:
        STRATEGIES[name] = build
        return build

    return register


def build_strategy(name: str, blank_id: int, options: Mapping[str, Any]) -> DecodeStrategy:
    """Raises ConfigError for a name that is not registered and for options that it does not have."""
    if name not in STRATEGIES:
        raise ConfigError(f"decode_method {name!r} is not supported; choose one of: {', '.join(sorted(STRATEGIES))}")
    if options:
        raise ConfigError(f"decode_options has {', '.join(sorted(options))}, but {name} takes none; leave it out")
    return STRATEGIES[name](blank_id)
