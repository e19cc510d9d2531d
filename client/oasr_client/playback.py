"""Plays a whole clip into a stream, as fast as it is answered or in real time, and measures the answers."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client import audio
from oasr_client.errors import RequestCancelled, StreamEnded
from oasr_client.resume import Resume
from oasr_client.session import StreamResponse
from oasr_client.streaming import Stream, StreamingClient


@dataclass(frozen=True)
class Progress:
    """Where a stream stands after a chunk.

    Attributes:
        sent_s: seconds of audio sent.
        response: the answer to the chunk.
        latency_s: seconds from the moment the chunk could be sent to its answer.
    """

    sent_s: float
    response: StreamResponse
    latency_s: float


OnProgress = Callable[[Progress], None]
"""Called after every chunk."""


@dataclass(frozen=True)
class Playback:
    """What came of a clip.

    Attributes:
        text: the final transcript.
        result: the RESULT document of the final answer, None unless it was asked for.
        audio_s: duration of the clip in seconds.
        elapsed_s: seconds from the first chunk to the final answer.
        latencies_s: seconds from the moment a chunk could be sent to its answer, one per chunk, the final one last.
        warning: why the server ended the stream before the clip did, "" when it did not.
        resumes: how often the stream was lost and resumed.
    """

    text: str
    result: dict[str, Any] | None
    audio_s: float
    elapsed_s: float
    latencies_s: tuple[float, ...]
    warning: str = ""
    resumes: int = 0

    @property
    def median_s(self) -> float:
        """Median latency of a chunk, in seconds."""
        return float(np.median(self.latencies_s))

    @property
    def p99_s(self) -> float:
        """99th percentile of the latency of a chunk, in seconds."""
        return float(np.percentile(self.latencies_s, 99))

    @property
    def real_time_factor(self) -> float:
        """Seconds spent waiting for the server per second of audio."""
        return sum(self.latencies_s) / self.audio_s if self.audio_s else 0.0


def play(
    client: StreamingClient,
    samples: npt.NDArray[Any],
    *,
    chunk_ms: float = 640.0,
    realtime: bool = False,
    options: Mapping[str, Any] | None = None,
    want_result: bool = False,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    resume: bool | Resume = False,
) -> Playback:
    """Streams a clip.

    Args:
        client: where to.
        samples: [N] at 16 kHz, float in [-1, 1] or int16.
        chunk_ms: length of a chunk in milliseconds.
        realtime: send each chunk when a microphone would have it, instead of when the last one is answered.
        options: options of the stream.
        want_result: ask for the RESULT document.
        on_progress: called after every chunk.
        stop: ends the stream early when set.
        resume: open the stream again when the server is lost, as `StreamingClient.stream` does.
    Raises:
        RequestCancelled: `stop` was set.
        OasrError: the server refused the clip or was lost.
    """
    stop = stop or threading.Event()
    pieces = list(audio.chunks(samples, chunk_ms)) or [samples]
    latencies: list[float] = []
    sent_s = 0.0
    warning = ""
    with client.stream(options, want_result, resume=resume, stop=stop) as stream:
        begin = time.perf_counter()
        for number, piece in enumerate(pieces):
            sent_s += audio.seconds(piece)
            due = begin + sent_s if realtime else time.perf_counter()
            if stop.wait(max(0.0, due - time.perf_counter())):
                raise RequestCancelled("the stream was stopped")
            response, warning = _send(stream, piece, last=number == len(pieces) - 1)
            latencies.append(time.perf_counter() - due)
            if on_progress:
                on_progress(Progress(sent_s, response, latencies[-1]))
            if warning:
                break
        elapsed_s = time.perf_counter() - begin
    return Playback(
        response.text, response.result, sent_s, elapsed_s, tuple(latencies), warning, resumes=response.resumes
    )


def _send(stream: Stream, piece: npt.NDArray[Any], last: bool) -> tuple[StreamResponse, str]:
    try:
        return (stream.finish(piece) if last else stream.send(piece)), ""
    except StreamEnded as ended:
        if last:
            raise
        return stream.finish(), str(ended)
