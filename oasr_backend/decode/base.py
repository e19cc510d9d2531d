"""The decode strategy interface and its registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from torch import Tensor

from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import ConfigError
from oasr_backend.utils.shown import listed, shown


@dataclass(frozen=True)
class Hypothesis:
    """One decoded token sequence.

    `frames` holds the peak frame of every token (counted from the start of the stream), `confidences` the posterior
    there; `score` is the natural logarithm of the hypothesis' probability, or what a second pass made of it.
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
    biases: bool = False
    """Whether hotwords can be honoured."""

    @abstractmethod
    def open(self, hotwords: HotwordGraph | None = None) -> DecodeSession:
        """A session at its start; `hotwords` only where the strategy `biases`."""

    @abstractmethod
    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        """Feeds row b's first `frames[b]` frames to session b."""

    def rewind(self, session: DecodeSession, frames: int) -> None:
        """The last frames, in which no token peaked, come again."""
        session.frames_seen -= frames

    @abstractmethod
    def best(self, session: DecodeSession) -> Hypothesis:
        """The best hypothesis so far, for partial results."""

    def n_best(self, session: DecodeSession, count: int) -> list[Hypothesis]:
        """The final hypotheses of all that was fed, best first: one at least, `count` at most."""
        return [self.best(session)][:count]

    def warnings(self, session: DecodeSession) -> tuple[str, ...]:
        """What a user should know of the final hypotheses."""
        return ()

    def close(self, session: DecodeSession) -> None:  # noqa: B027 (most strategies hold nothing)
        """Returns what the session holds; called once, when its stream ends."""


class Rescorer(Protocol):
    """A decoder that scores whole hypotheses against encoder frames."""

    reverse_weight: float
    """Share of the right-to-left pass that the model was trained with; 0 without one."""
    ctc_weight: float
    """Weight of the first pass that the model was trained with."""

    def rescore(self, frames: Tensor, hypotheses: Sequence[Sequence[int]], reverse_weight: float) -> Tensor:
        """`frames` [1, T, dim] -> natural log-probabilities [N] float32, directions weighted."""


@dataclass(frozen=True)
class NoOptions:
    """Of strategies without knobs."""


@dataclass(frozen=True)
class DecodeSetup:
    """What a strategy is built from: the model's side of it, and its own options."""

    blank_id: int
    vocab_size: int
    options: Any = NoOptions()
    rescorer: Rescorer | None = None
    seconds_per_frame: float = 0.04


@dataclass(frozen=True)
class StrategyKind:
    """How a strategy is built, and the frozen dataclass of its knobs."""

    build: Callable[[DecodeSetup], DecodeStrategy]
    options: type = NoOptions


STRATEGIES: dict[str, StrategyKind] = {}


def register_decode_strategy(
    name: str, options: type = NoOptions
) -> Callable[[Callable[[DecodeSetup], DecodeStrategy]], Callable[[DecodeSetup], DecodeStrategy]]:
    """Registers a builder that raises ConfigError where the model lacks what the strategy needs."""

    def register(build: Callable[[DecodeSetup], DecodeStrategy]) -> Callable[[DecodeSetup], DecodeStrategy]:
        STRATEGIES[name] = StrategyKind(build, options)
        return build

    return register


def strategy_options(name: str, values: Mapping[str, Any]) -> Any:
    """The options of a strategy. Raises ConfigError for an unknown name, a key that it lacks and a wrong value."""
    if name not in STRATEGIES:
        raise ConfigError(
            f"decode_method {shown(name)} is not supported; choose one of: {', '.join(sorted(STRATEGIES))}"
        )
    kind = STRATEGIES[name].options
    known = [field.name for field in fields(kind)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"decode_options has {listed(unknown)}; {name} knows {', '.join(known) or 'none'}")
    return kind(**values)


def build_strategy(name: str, setup: DecodeSetup) -> DecodeStrategy:
    """Raises ConfigError for a name that is not registered or a model that cannot be decoded so."""
    if name not in STRATEGIES:
        raise ConfigError(
            f"decode_method {shown(name)} is not supported; choose one of: {', '.join(sorted(STRATEGIES))}"
        )
    return STRATEGIES[name].build(setup)
