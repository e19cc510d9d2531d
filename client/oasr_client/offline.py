"""Offline recognition: whole files or clips, several at a time."""

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oasr_client import audio, options, transport
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.errors import OasrError, RequestCancelled, ServerUnavailable, ServerUnreachable
from oasr_client.model_version import versioned
from oasr_client.resume import delay_s
from oasr_client.session import Contact
from oasr_client.steps import Outputs, Pause, Send, Steps, drive, outputs_wanted, result_of

FILE_MODEL = "oasr_transcribe"
SAMPLES_MODEL = "oasr_offline"
DECODER = "audio_decode"
DECODED = ("WAV", "WAV_LENS", "AUDIO_INFO")
"""What a file is decoded to, by the names under which the samples' model takes it."""
DEFAULT_TIMEOUT_S = 600.0

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Transcription:
    """The text of one clip.

    Attributes:
        source: the path as it was given, "" for bytes and samples.
        text: the transcript.
        result: the parsed RESULT document, None unless it was asked for.
        latency_s: seconds from sending the clip to its answer.
    """

    source: str
    text: str
    result: dict[str, Any] | None
    latency_s: float


@dataclass(frozen=True)
class Clip:
    """A clip as it is sent: the tensors of a model, or of `decoder`, whose outputs are those of the model."""

    source: str
    model: str
    inputs: Mapping[str, transport.Array]
    decoder: str = ""


@dataclass(frozen=True)
class Failure:
    """A clip of `OfflineClient.transcribe_many` that could not be transcribed, and why."""

    source: str
    error: OasrError


class OfflineClient:
    """Transcribes whole clips; safe to share between threads.

    >>> from oasr_client import OfflineClient
    >>> with OfflineClient() as client:
    ...     print(client.transcribe_file("assets/clips/digits.flac").text)
    SEVEN THREE NINE TWO ZERO FIVE

    Args:
        url: HOST:PORT, default that of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for the text of one clip.
        retry_seconds: seconds for which a clip is sent again when the server is full, stopping or lost, once it has
            answered this client; 0: not at all.
        model_version: the version of `oasr_offline`; without one the server takes the highest. Files are then decoded
            by one request and recognised by another, and their samples travel twice.
        credentials: token and TLS.
        via: a transport to use instead of an own one; it is not closed here.
    """

    def __init__(
        self,
        url: str | None = None,
        protocol: str = "grpc",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        retry_seconds: float = 0.0,
        model_version: int | None = None,
        credentials: Credentials = ANONYMOUS,
        via: transport.Transport | None = None,
    ) -> None:
        self._model = versioned(SAMPLES_MODEL, model_version)
        self._owned = via is None
        self._transport = via or transport.connect(url, protocol, timeout_s, credentials=credentials)
        self._retry_seconds = retry_seconds
        self._contact = Contact()
        self._stop = threading.Event()

    def transcribe_file(
        self, source: str | Path | bytes, options: Mapping[str, Any] | None = None, want_result: bool = False
    ) -> Transcription:
        """Sends a file as it is; the server decodes it.

        Args:
            source: a path, or the bytes of a file.
            options: options of the request.
            want_result: ask for the RESULT document.
        Raises:
            AudioError: the file is missing, empty or not readable.
            OasrError: the server refused it or was lost.
        """
        data = source if isinstance(source, bytes) else audio.read_bytes(source)
        return self._ask(file_clip(data, name_of(source), self._model), options, want_result)

    def transcribe_samples(
        self, samples: npt.NDArray[Any], options: Mapping[str, Any] | None = None, want_result: bool = False
    ) -> Transcription:
        """Sends samples [N] at 16 kHz, float in [-1, 1] or int16.

        Raises:
            AudioError: the samples cannot be sent.
            OasrError: the server refused them or was lost.
        """
        return self._ask(samples_clip(samples, model=self._model), options, want_result)

    def transcribe_many(
        self,
        sources: Iterable[str | Path | bytes],
        concurrency: int = 8,
        options: Mapping[str, Any] | None = None,
        want_result: bool = False,
    ) -> Iterator[Transcription | Failure]:
        """Transcribes files, `concurrency` at a time, and yields in the order of `sources`.

        A file that fails yields a `Failure` and does not stop the others. Leaving the iterator early drops the files
        that were not sent yet.
        """

        def one(source: str | Path | bytes) -> Transcription | Failure:
            try:
                return self.transcribe_file(source, options, want_result)
            except OasrError as error:
                return Failure(name_of(source), error)

        return in_order(sources, one, concurrency)

    def close(self) -> None:
        """Closes the connection, unless it was handed in; whoever waits for a server that is full waits no more."""
        self._stop.set()
        if self._owned:
            self._transport.close()

    def __enter__(self) -> "OfflineClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, clip: Clip, opts: Mapping[str, Any] | None, want_result: bool) -> Transcription:
        work = transcribing(clip, options.encode(opts), want_result, self._retry_seconds, self._contact)
        return drive(work, self._transport, self._pause)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise RequestCancelled("the client was closed while it waited for the server")


def name_of(source: str | Path | bytes) -> str:
    """How a source is called in results: its path, "" for bytes."""
    return "" if isinstance(source, bytes) else str(source)


def file_clip(data: bytes, source: str, model: str = SAMPLES_MODEL) -> Clip:
    """The bytes of a file, for the server to decode; `model` hears what is in it."""
    inputs = {"AUDIO": np.array([[data]], dtype=np.object_)}
    if model == SAMPLES_MODEL:
        return Clip(source, FILE_MODEL, inputs)
    # An ensemble always calls the highest version.
    return Clip(source, model, inputs, DECODER)


def samples_clip(samples: npt.NDArray[Any], source: str = "", model: str = SAMPLES_MODEL) -> Clip:
    """Samples [N] at 16 kHz. Raises AudioError for what cannot be sent."""
    return Clip(source, model, {"PCM": transport.batch_of_one(audio.to_pcm(samples))})


def transcribing(
    clip: Clip,
    parameters: Mapping[str, options.Parameter],
    want_result: bool,
    retry_seconds: float,
    contact: Contact,
) -> Steps[Transcription]:
    """The steps of one clip's transcription; raises an `OasrError` where it fails for good."""
    inputs, decoding_s = clip.inputs, 0.0
    if clip.decoder:
        request = Send(clip.decoder, inputs, DECODED, parameters=parameters)
        inputs, decoding_s = yield from _answered(request, retry_seconds, contact)
    request = Send(clip.model, inputs, outputs_wanted(want_result), parameters=parameters)
    outputs, latency_s = yield from _answered(request, retry_seconds, contact)
    return Transcription(clip.source, transport.text_of(outputs), result_of(outputs), decoding_s + latency_s)


def _answered(request: Send, retry_seconds: float, contact: Contact) -> Steps[tuple[Outputs, float]]:
    """The answer to a request that is sent again while the server cannot take it, and the seconds that it took."""
    rng = random.Random()
    first_failed: float | None = None
    for attempt in itertools.count(1):
        begin = time.perf_counter()
        try:
            outputs = yield request
        except ServerUnavailable as error:
            pause_s = delay_s(attempt, error, rng)
            now = time.perf_counter()
            first_failed = now if first_failed is None else first_failed
            if not contact.met or now + pause_s - first_failed > retry_seconds:
                if isinstance(error, ServerUnreachable):
                    # The clips that follow need not wait for it as long again.
                    contact.met = False
                raise
        else:
            break
        yield Pause(pause_s)
    contact.met = True
    assert outputs is not None
    return outputs, time.perf_counter() - begin


def in_order(items: Iterable[Item], work: Callable[[Item], Outcome], concurrency: int) -> Iterator[Outcome]:
    """Runs `work` on every item, `concurrency` at a time, and yields in their order.

    Items are taken as they are needed, so that there may be very many. Leaving early drops those that were not begun.
    """
    pool = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="oasr-offline")
    begun: deque[Future[Outcome]] = deque()
    try:
        for item in items:
            # One slow item must not keep the others from being begun.
            while len(begun) >= 16 * concurrency:
                yield begun.popleft().result()
            begun.append(pool.submit(work, item))
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
