"""A request, its life, and what comes back of it."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import numpy as np

from oasr_backend.decode.base import Hypothesis
from oasr_backend.decode.words import TimedWord
from oasr_backend.engine.options import DecodingOptions
from oasr_backend.engine.transcript import Endpoint, Segment, Transcript

ErrorStage = Literal[
    "offline_prep",
    "offline_forward",
    "offline_oom",
    "prefill_oom",
    "decode_step",
    "decode_oom",
    "streaming_features",
    "streaming_forward",
]
FinishReason = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class SpeechBoundary:
    """Where speech began or ended, in seconds from the start of the audio."""

    kind: Literal["speech_start", "speech_end"]
    seconds: float


class RequestState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True)
class RequestOutput:
    """What a step says of a request; times are seconds from the start of its audio.

    `timestamps` holds the peak of every token of a final output, `start` and `end` the extent of the text (None while
    there is none); `words`, `nbest_texts` and `speech_events` are None unless asked for. `segments` are those with
    text, the last of a partial output being the live one; `endpoint` is the last one since the output before.
    `samples_done` counts the samples of a stream whose every ready window has been decoded.
    """

    request_id: str
    text: str = ""
    tokens: tuple[tuple[int, ...], ...] = ((),)
    scores: tuple[float, ...] = (0.0,)
    finished: bool = False
    timestamps: tuple[float, ...] = ()
    confidence: float | None = None
    start: float | None = None
    end: float | None = None
    words: tuple[TimedWord, ...] | None = None
    nbest_texts: tuple[str, ...] | None = None
    finish_reason: FinishReason | None = None
    error_stage: ErrorStage | None = None
    error: str | None = None
    audio_seconds: float = 0.0
    samples_done: int = 0
    segments: tuple[Segment, ...] = ()
    endpoint: Endpoint | None = None
    speech_events: tuple[SpeechBoundary, ...] | None = None
    warnings: tuple[str, ...] = ()


@dataclass
class Request:
    """One clip or one stream, from admission to its final output."""

    request_id: str
    streaming: bool
    priority: int = 0
    chunk_size: int = 0
    num_left_chunks: int = -1
    options: DecodingOptions = field(default_factory=DecodingOptions)
    arrival_time: float = 0.0
    """Monotonic seconds, stamped when the request starts to wait."""
    state: RequestState = RequestState.WAITING

    # offline
    audio: np.ndarray | None = None
    parent_id: str | None = None
    """The recording that this is a window of; such a request is asked for its hypothesis and not for its text."""
    hypothesis: Hypothesis | None = None

    # streaming: audio in
    audio_chunks: deque[np.ndarray] = field(default_factory=deque)
    audio_final: bool = False
    samples_received: int = 0
    samples_consumed: int = 0
    samples_done: int = 0
    # streaming: state
    stream_id: int = -1
    """Streams are counted as they start."""
    slot: int | None = None
    transcript: Transcript | None = None
    warnings: tuple[str, ...] = ()
    """Of a window's decoding, for its recording."""
    offset: int = 0
    """Encoder frames since the history began."""
    windows_decoded: int = 0
    last_step: int = 0
    """The step that last took a window of the stream."""

    @property
    def live_transcript(self) -> Transcript:
        """The transcript; only while the request runs."""
        assert self.transcript is not None
        return self.transcript

    @property
    def has_pending_audio(self) -> bool:
        return bool(self.audio_chunks)
