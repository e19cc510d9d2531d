"""Streaming recognition: one stream of audio per sequence of the server."""

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client import audio, errors, options, transport

MODEL = "oasr_streaming"
MAX_CORRELATION_ID = 2**63 - 1
_FAREWELL_TIMEOUT_S = 5.0
_EMPTY = np.zeros(0, dtype=np.int16)


@dataclass(frozen=True)
class StreamResponse:
    """The answer to one chunk.

    Attributes:
        text: everything recognised in the stream so far.
        is_final: the answer to the end of the stream; the text changes no more.
        result: the parsed RESULT document, None unless it was asked for.
        latency_s: seconds from sending the chunk to its answer.
    """

    text: str
    is_final: bool
    result: dict[str, Any] | None
    latency_s: float


class StreamingClient:
    """Opens streams on the server; many may be open at a time, each used by one thread.

    Args:
        url: HOST:PORT, default that of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for the answer to a chunk.
        encoding: "pcm" sends int16 samples, "float" sends float32.
        via: a transport to use instead of an own one; it is not closed here.
    """

    def __init__(
        self,
        url: str | None = None,
        protocol: str = "grpc",
        timeout_s: float = transport.DEFAULT_TIMEOUT_S,
        *,
        encoding: str = "pcm",
        model: str = MODEL,
        via: transport.Transport | None = None,
    ) -> None:
        if encoding not in ("pcm", "float"):
            raise ValueError(f"encoding is {encoding!r}: it must be pcm or float")
        self._owned = via is None
        self._transport = via or transport.connect(url, protocol, timeout_s)
        self._encoding = encoding
        self._model = model

    def stream(
        self,
        options: Mapping[str, Any] | None = None,
        want_result: bool = False,
        correlation_id: transport.CorrelationId | None = None,
    ) -> "Stream":
        """A new stream; the server hears of it with its first chunk.

        Args:
            options: options of the request, such as `n_best` or `hotwords`; lists are allowed.
            want_result: ask for the RESULT document with every answer.
            correlation_id: default a fresh random one.
        """
        return Stream(
            self._transport, self._model, self._encoding, options, want_result, correlation_id or new_correlation_id()
        )

    def is_ready(self) -> bool:
        """Whether the server calls its streaming model ready."""
        return self._transport.is_ready(self._model)

    def close(self) -> None:
        """Closes the connection, unless it was handed in."""
        if self._owned:
            self._transport.close()

    def __enter__(self) -> "StreamingClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Stream:
    """One stream of audio, to be used as a context manager: leaving it always ends the stream on the server.

    A chunk that the server refuses raises, consumes nothing and leaves the stream usable. After `UnknownSequence`
    the next chunk opens the stream anew, with an empty text.
    """

    def __init__(
        self,
        via: transport.Transport,
        model: str,
        encoding: str,
        opts: Mapping[str, Any] | None,
        want_result: bool,
        correlation_id: transport.CorrelationId,
    ) -> None:
        self._transport = via
        self._model = model
        self._encoding = encoding
        self._parameters = options.encode(opts)
        self._outputs = ["TRANSCRIPTS", "RESULT"] if want_result else ["TRANSCRIPTS"]
        self._id = correlation_id
        # known: the server may hold the stream; started: its START was taken; ended: its END was.
        self._known = False
        self._started = False
        self._ended = False

    @property
    def correlation_id(self) -> transport.CorrelationId:
        """The id under which the server knows the stream."""
        return self._id

    def send(self, chunk: npt.NDArray[Any]) -> StreamResponse:
        """Sends a chunk of any length and waits for the text so far.

        Args:
            chunk: [N] at 16 kHz, float in [-1, 1] or int16; N may be 0.
        Raises:
            OasrError: the chunk was refused or lost; `AudioError` before anything is sent.
        """
        return self._request(chunk, end=False)

    def finish(self, chunk: npt.NDArray[Any] | None = None) -> StreamResponse:
        """Ends the stream, with a last chunk if given, and returns the final text.

        Raises:
            OasrError: the server refused or was lost.
        """
        return self._request(_EMPTY if chunk is None else chunk, end=True)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._known or self._ended:
            return
        try:
            # Without an END the server would keep the stream until it expires.
            self._infer(_EMPTY, transport.SequenceStep(self._id, end=True), _FAREWELL_TIMEOUT_S)
        except errors.OasrError:
            pass
        finally:
            self._ended = True

    def _request(self, chunk: npt.NDArray[Any], end: bool) -> StreamResponse:
        if self._ended:
            raise errors.InvalidRequest("this stream has ended: open a new one for more audio")
        samples = audio.to_pcm(chunk) if self._encoding == "pcm" else audio.to_float(chunk)
        step = transport.SequenceStep(self._id, start=not self._started, end=end)
        begin = time.perf_counter()
        try:
            outputs = self._infer(samples, step)
        except errors.UnknownSequence:
            self._known = self._started = False
            self._ended = end
            raise
        except (errors.ServerTimeout, errors.RequestCancelled):
            # The server may have taken the audio: a second START would silently throw it away.
            self._started = True
            raise
        except errors.ServerUnreachable:
            raise
        except errors.OasrError:
            # A refusal shows that the request arrived, and an END that arrived closes the sequence.
            self._ended = end
            raise
        latency_s = time.perf_counter() - begin
        self._started = True
        self._ended = end
        return StreamResponse(transport.text_of(outputs), end, result_of(outputs), latency_s)

    def _infer(
        self, samples: npt.NDArray[Any], step: transport.SequenceStep, timeout_s: float | None = None
    ) -> dict[str, transport.Array]:
        self._known = True
        name = "PCM" if samples.dtype == np.int16 else "WAV"
        return self._transport.infer(
            self._model,
            {name: transport.batch_of_one(samples)},
            self._outputs,
            sequence=step,
            parameters=self._parameters if step.start else None,
            timeout_s=timeout_s,
        )


def new_correlation_id() -> int:
    """A random id that every protocol carries: 1 to 2^63-1."""
    return random.SystemRandom().randint(1, MAX_CORRELATION_ID)


def result_of(outputs: Mapping[str, transport.Array]) -> dict[str, Any] | None:
    """The parsed RESULT document, None where it was not asked for.

    Raises:
        ServerError: it is not a JSON object.
    """
    if "RESULT" not in outputs:
        return None
    try:
        parsed = json.loads(outputs["RESULT"].reshape(-1)[0])
    except (ValueError, IndexError) as error:
        raise errors.ServerError(f"the RESULT of the server is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise errors.ServerError("the RESULT of the server is not a JSON object")
    return parsed
