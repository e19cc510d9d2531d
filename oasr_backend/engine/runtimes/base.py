"""Where live streams keep their encoder state, and the registry of such runtimes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from oasr_backend.config import ResolvedConfig
from oasr_backend.engine.request import Request
from oasr_backend.errors import ConfigError
from oasr_backend.models.base import AsrModel


@dataclass(frozen=True)
class RuntimeUsage:
    """What is taken of what there is."""

    slots_free: int
    blocks_used: int
    blocks_capacity: int
    graphs: int = 0
    """Shapes of steps that are captured."""


class StreamingRuntime(ABC):
    """State of up to `max_batch_size` streams. A request's `slot` is its row; all calls are under the engine's lock."""

    @abstractmethod
    def allocate(self, request: Request) -> None:
        """Gives a stream a slot with nothing of its last user in it."""

    @abstractmethod
    def free(self, request: Request) -> None:
        """Takes everything back; a request that holds nothing is left alone."""

    @abstractmethod
    def restart(self, request: Request) -> None:
        """Forgets a running stream's history; its next chunk is like the first of a new stream."""

    @abstractmethod
    def reserve(self, request: Request, frames: int) -> bool:
        """Makes room for the next chunk of `frames` frames; False when the stream is at its ceiling."""

    @abstractmethod
    def forward(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> Tensor:
        """One step of streams of equal chunk size and history, whatever their offsets.

        `features` [B, window, bins], `frames` valid new frames a row (room reserved) -> hidden [B, chunk, dim].
        """

    def prewarm(self) -> None:
        """Captures ahead what would else be captured while streams wait; nothing where nothing is captured."""
        return None

    def take_graph_counts(self) -> Mapping[str, int]:
        """Steps since the last call by `graphs.cache.Outcome`; none where nothing could be captured."""
        return {}

    @property
    @abstractmethod
    def usage(self) -> RuntimeUsage: ...


RuntimeBuilder = Callable[[AsrModel, ResolvedConfig], StreamingRuntime]

RUNTIMES: dict[str, RuntimeBuilder] = {}


def register_streaming_runtime(name: str) -> Callable[[RuntimeBuilder], RuntimeBuilder]:
    def register(build: RuntimeBuilder) -> RuntimeBuilder:
        RUNTIMES[name] = build
        return build

    return register


def build_runtime(name: str, model: AsrModel, config: ResolvedConfig) -> StreamingRuntime:
    """Raises ConfigError for a name that is not registered."""
    if name not in RUNTIMES:
        raise ConfigError(f"streaming runtime {name!r} is not known; registered are: {', '.join(sorted(RUNTIMES))}")
    return RUNTIMES[name](model, config)
