"""Streaming recognition: one stream of audio per sequence of the server."""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy.typing as npt

from oasr_client import errors, options, transport
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.model_version import versioned
from oasr_client.resume import Resume, policy_of
from oasr_client.session import EMPTY, Contact, StreamResponse, StreamSession, StreamSpec, new_correlation_id
from oasr_client.steps import Outcome, Steps, drive

MODEL = "oasr_streaming"


class StreamingClient:
    """Opens streams on the server; many may be open at a time, each used by one thread.

    >>> from oasr_client import StreamingClient, audio
    >>> samples = audio.read("assets/clips/digits.flac")
    >>> with StreamingClient() as client, client.stream(resume=True) as stream:
    ...     for chunk in audio.chunks(samples, 640):
    ...         response = stream.send(chunk)
    ...     print(stream.finish().text)
    SEVEN THREE NINE TWO ZERO FIVE

    Args:
        url: HOST:PORT, default that of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for the answer to a chunk.
        encoding: "pcm" sends int16 samples, "float" sends float32.
        model: NAME, or NAME:VERSION where the server has several.
        model_version: the version by itself; without one the server takes the highest.
        credentials: token and TLS.
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
        model_version: int | None = None,
        credentials: Credentials = ANONYMOUS,
        via: transport.Transport | None = None,
    ) -> None:
        check_encoding(encoding)
        self._model = versioned(model, model_version)
        self._owned = via is None
        self._transport = via or transport.connect(url, protocol, timeout_s, credentials=credentials)
        self._encoding = encoding
        self._contact = Contact()

    def stream(
        self,
        options: Mapping[str, Any] | None = None,
        want_result: bool = False,
        correlation_id: transport.CorrelationId | None = None,
        *,
        resume: bool | Resume = False,
        stop: threading.Event | None = None,
    ) -> "Stream":
        """A new stream; the server hears of it with its first chunk.

        Args:
            options: options of the request, such as `n_best` or `hotwords`; lists are allowed.
            want_result: ask for the RESULT document with every answer.
            correlation_id: default a fresh random one; a stream that is resumed goes on under another.
            resume: open the stream again when the server is lost, and send again what was not final; True is
                `Resume()`.
            stop: ends a wait for the server when another thread sets it; the request then raises `RequestCancelled`.
        """
        spec = spec_of(self._model, self._encoding, options, want_result, resume)
        session = StreamSession(spec, self._contact, correlation_id or new_correlation_id())
        return Stream(self._transport, session, stop or threading.Event())

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
    the next chunk opens the stream anew, with an empty text; with `resume` that is done for the caller, and the text
    is that of the whole stream.
    """

    def __init__(self, via: transport.Transport, session: StreamSession, stop: threading.Event) -> None:
        self._transport = via
        self._session = session
        self._stop = stop

    @property
    def correlation_id(self) -> transport.CorrelationId:
        """The id under which the server knows the stream at present."""
        return self._session.correlation_id

    @property
    def resumes(self) -> int:
        """How often the stream has been resumed."""
        return self._session.resumes

    def send(self, chunk: npt.NDArray[Any]) -> StreamResponse:
        """Sends a chunk of any length and waits for the text so far.

        Args:
            chunk: [N] at 16 kHz, float in [-1, 1] or int16; N may be 0.
        Raises:
            OasrError: the chunk was refused or lost, and is no part of the stream; `AudioError` before anything is
                sent, `ResumeFailed` where the stream was lost for good.
        """
        return self._drive(self._session.request(chunk, end=False))

    def finish(self, chunk: npt.NDArray[Any] | None = None) -> StreamResponse:
        """Ends the stream, with a last chunk if given, and returns the final text.

        Raises:
            OasrError: the server refused or was lost.
        """
        return self._drive(self._session.request(EMPTY if chunk is None else chunk, end=True))

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drive(self._session.farewell())

    def _drive(self, steps: Steps[Outcome]) -> Outcome:
        return drive(steps, self._transport, self._pause)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise errors.RequestCancelled("the stream was stopped while it waited for the server")


def check_encoding(encoding: str) -> None:
    """Raises ValueError for what is neither "pcm" nor "float"."""
    if encoding not in ("pcm", "float"):
        raise ValueError(f"encoding is {encoding!r}: it must be pcm or float")


def spec_of(
    model: str, encoding: str, opts: Mapping[str, Any] | None, want_result: bool, resume: bool | Resume
) -> StreamSpec:
    """What a stream is to be. Raises InvalidRequest for an option that cannot travel."""
    return StreamSpec(model, encoding, options.encode(opts), want_result, policy_of(resume))
