"""A file decoded in both ways, without a server."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oasr_backend.decode.words import TimedWord
from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.inspection.comparison import Difference, differences


class TrialError(RuntimeError):
    """The audio was not decoded; one sentence for the user."""


@dataclass(frozen=True)
class Decoded:
    """A text, its words with times, and the seconds that it took."""

    text: str
    words: tuple[TimedWord, ...]
    seconds: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """What became of a file; `streaming` is None where the model cannot stream."""

    audio_seconds: float
    offline: Decoded
    streaming: Decoded | None

    @property
    def differences(self) -> list[Difference]:
        """Offline on the left, streaming on the right."""
        return [] if self.streaming is None else differences(self.offline.text, self.streaming.text)


def decode(engine: ASREngine, samples: np.ndarray, decoding: Mapping[str, Any]) -> Trial:
    """`samples` [N] at the engine's rate, whole and then in chunks of a step. Raises ValueError for an option that
    cannot be honoured or a clip that is too long, TrialError when a pass fails.
    """
    options = {"word_timestamps": True, **decoding}
    offline = _timed(lambda: engine.transcribe_outputs([samples], streaming=False, decoding=options)[0])
    streaming = _timed(lambda: _stream(engine, samples, options)) if engine.config.streaming else None
    return Trial(len(samples) / engine.sample_rate, offline, streaming)


def _stream(engine: ASREngine, samples: np.ndarray, decoding: Mapping[str, Any]) -> RequestOutput:
    stream = engine.add_streaming_request(decoding=decoding)
    size = round(engine.chunk_seconds * engine.sample_rate)
    final: RequestOutput | None = None
    for begin in range(0, max(1, len(samples)), size):
        engine.feed_chunk(stream, samples[begin : begin + size], is_last=begin + size >= len(samples))
        while engine.has_work:
            final = next((output for output in engine.step() if output.finished), final)
    if final is None:
        raise TrialError("the stream came to no end; report it with the file")
    return final


def _timed(work: Callable[[], RequestOutput]) -> Decoded:
    begin = time.perf_counter()
    output = work()
    if output.error is not None:
        raise TrialError(f"it was not decoded ({output.error})")
    return Decoded(output.text, output.words or (), time.perf_counter() - begin, output.warnings)
