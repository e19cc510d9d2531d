"""Offline recognition: whole files or clips, several at a time."""

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client import audio, options, transport
from oasr_client.errors import OasrError
from oasr_client.session import result_of

FILE_MODEL = "oasr_transcribe"
SAMPLES_MODEL = "oasr_offline"
DEFAULT_TIMEOUT_S = 600.0


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
class Failure:
    """A clip of `OfflineClient.transcribe_many` that could not be transcribed, and why."""

    source: str
    error: OasrError


class OfflineClient:
    """Transcribes whole clips; safe to share between threads.

    Args:
        url: HOST:PORT, default that of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for the text of one clip.
        via: a transport to use instead of an own one; it is not closed here.
    """

    def __init__(
        self,
        url: str | None = None,
        protocol: str = "grpc",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        *,
        via: transport.Transport | None = None,
    ) -> None:
        self._owned = via is None
        self._transport = via or transport.connect(url, protocol, timeout_s)

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
        tensor = np.array([[data]], dtype=np.object_)
        name = "" if isinstance(source, bytes) else str(source)
        return self._infer(FILE_MODEL, {"AUDIO": tensor}, name, options, want_result)

    def transcribe_samples(
        self, samples: npt.NDArray[Any], options: Mapping[str, Any] | None = None, want_result: bool = False
    ) -> Transcription:
        """Sends samples [N] at 16 kHz, float in [-1, 1] or int16.

        Raises:
            AudioError: the samples cannot be sent.
            OasrError: the server refused them or was lost.
        """
        pcm = transport.batch_of_one(audio.to_pcm(samples))
        return self._infer(SAMPLES_MODEL, {"PCM": pcm}, "", options, want_result)

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
                return Failure("" if isinstance(source, bytes) else str(source), error)

        pool = ThreadPoolExecutor(max(1, concurrency), thread_name_prefix="oasr-offline")
        try:
            for future in [pool.submit(one, source) for source in sources]:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Closes the connection, unless it was handed in."""
        if self._owned:
            self._transport.close()

    def __enter__(self) -> "OfflineClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _infer(
        self,
        model: str,
        inputs: Mapping[str, transport.Array],
        source: str,
        opts: Mapping[str, Any] | None,
        want_result: bool,
    ) -> Transcription:
        wanted = ["TRANSCRIPTS", "RESULT"] if want_result else ["TRANSCRIPTS"]
        begin = time.perf_counter()
        outputs = self._transport.infer(model, inputs, wanted, parameters=options.encode(opts))
        latency_s = time.perf_counter() - begin
        return Transcription(source, transport.text_of(outputs), result_of(outputs), latency_s)
