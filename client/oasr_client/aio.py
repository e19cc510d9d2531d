"""The clients for asyncio, with the names and the rules of the blocking ones."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt

from oasr_client import audio, offline, transport
from oasr_client import options as request_options
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.errors import OasrError
from oasr_client.model_version import versioned
from oasr_client.offline import Clip, Failure, Transcription
from oasr_client.options import Parameter
from oasr_client.resume import Resume
from oasr_client.session import EMPTY, FAREWELL_TIMEOUT_S, Contact, StreamResponse, StreamSession, new_correlation_id
from oasr_client.steps import Outputs, drive_async
from oasr_client.streaming import MODEL, check_encoding, spec_of


class _Connected:
    """A client that closes its connection, unless it was handed in."""

    def __init__(
        self,
        url: str | None,
        protocol: str,
        timeout_s: float,
        credentials: Credentials,
        via: transport.AsyncTransport | None,
    ) -> None:
        self._owned = via is None
        self._transport = via or transport.connect_async(url, protocol, timeout_s, credentials=credentials)
        self._contact = Contact()

    async def close(self) -> None:
        """Closes the connection, unless it was handed in."""
        if self._owned:
            await self._transport.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncStreamingClient(_Connected):
    """`StreamingClient` for asyncio: any number of streams in one event loop.

    >>> import asyncio
    >>> from oasr_client import AsyncStreamingClient, audio
    >>> async def main():
    ...     samples = audio.read("assets/clips/digits.flac")
    ...     async with AsyncStreamingClient() as client, client.stream(resume=True) as stream:
    ...         for chunk in audio.chunks(samples, 640):
    ...             await stream.send(chunk)
    ...         return (await stream.finish()).text
    >>> asyncio.run(main())
    'SEVEN THREE NINE TWO ZERO FIVE'

    Args: as for `StreamingClient`.
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
        via: transport.AsyncTransport | None = None,
    ) -> None:
        check_encoding(encoding)
        self._model = versioned(model, model_version)
        super().__init__(url, protocol, timeout_s, credentials, via)
        self._encoding = encoding

    def stream(
        self,
        options: Mapping[str, Any] | None = None,
        want_result: bool = False,
        correlation_id: transport.CorrelationId | None = None,
        *,
        resume: bool | Resume = False,
    ) -> "AsyncStream":
        """A new stream, as `StreamingClient.stream`."""
        spec = spec_of(self._model, self._encoding, options, want_result, resume)
        session = StreamSession(spec, self._contact, correlation_id or new_correlation_id())
        return AsyncStream(self._transport, session)

    async def is_ready(self) -> bool:
        """Whether the server calls its streaming model ready."""
        return await self._transport.is_ready(self._model)

    async def __aenter__(self) -> "AsyncStreamingClient":
        return self


class AsyncStream:
    """`Stream` for asyncio; requests of one stream are made one after the other, in the order of the calls."""

    def __init__(self, via: transport.AsyncTransport, session: StreamSession) -> None:
        self._requests = _Requests(via)
        self._session = session
        self._turn = asyncio.Lock()

    @property
    def correlation_id(self) -> transport.CorrelationId:
        """The id under which the server knows the stream at present."""
        return self._session.correlation_id

    @property
    def resumes(self) -> int:
        """How often the stream has been resumed."""
        return self._session.resumes

    async def send(self, chunk: npt.NDArray[Any]) -> StreamResponse:
        """As `Stream.send`. A call that is cancelled leaves it open whether its chunk was taken, except with `resume`:
        then it was not."""
        async with self._turn:
            return await drive_async(self._session.request(chunk, end=False), self._requests, asyncio.sleep)

    async def finish(self, chunk: npt.NDArray[Any] | None = None) -> StreamResponse:
        """As `Stream.finish`."""
        async with self._turn:
            steps = self._session.request(EMPTY if chunk is None else chunk, end=True)
            return await drive_async(steps, self._requests, asyncio.sleep)

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await drive_async(self._session.farewell(), self._requests, asyncio.sleep)


class _Requests:
    """The requests of one stream. Whoever waits for one may be cancelled; the request itself is not.

    Triton forgets a sequence of which a request is cancelled that it still holds, and tells the model nothing: its END
    could not free it.
    """

    def __init__(self, via: transport.AsyncTransport) -> None:
        self._via = via
        self._last: asyncio.Future[Outputs] | None = None

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, transport.Array],
        outputs: Sequence[str],
        *,
        sequence: transport.SequenceStep | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> Outputs:
        """As `AsyncTransport.infer`, behind the request before it."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last], timeout=FAREWELL_TIMEOUT_S)
        call = self._via.infer(model, inputs, outputs, sequence=sequence, parameters=parameters, timeout_s=timeout_s)
        self._last = asyncio.ensure_future(call)
        # So that a failure that nobody waits for is not reported.
        self._last.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._last)


class AsyncOfflineClient(_Connected):
    """`OfflineClient` for asyncio.

    >>> import asyncio
    >>> from oasr_client import AsyncOfflineClient
    >>> async def main():
    ...     async with AsyncOfflineClient() as client:
    ...         return (await client.transcribe_file("assets/clips/digits.flac")).text
    >>> asyncio.run(main())
    'SEVEN THREE NINE TWO ZERO FIVE'

    Args: as for `OfflineClient`.
    """

    def __init__(
        self,
        url: str | None = None,
        protocol: str = "grpc",
        timeout_s: float = offline.DEFAULT_TIMEOUT_S,
        *,
        retry_seconds: float = 0.0,
        model_version: int | None = None,
        credentials: Credentials = ANONYMOUS,
        via: transport.AsyncTransport | None = None,
    ) -> None:
        self._model = versioned(offline.SAMPLES_MODEL, model_version)
        super().__init__(url, protocol, timeout_s, credentials, via)
        self._retry_seconds = retry_seconds

    async def transcribe_file(
        self, source: str | Path | bytes, options: Mapping[str, Any] | None = None, want_result: bool = False
    ) -> Transcription:
        """As `OfflineClient.transcribe_file`."""
        data = source if isinstance(source, bytes) else await asyncio.to_thread(audio.read_bytes, source)
        return await self._ask(offline.file_clip(data, offline.name_of(source), self._model), options, want_result)

    async def transcribe_samples(
        self, samples: npt.NDArray[Any], options: Mapping[str, Any] | None = None, want_result: bool = False
    ) -> Transcription:
        """As `OfflineClient.transcribe_samples`."""
        return await self._ask(offline.samples_clip(samples, model=self._model), options, want_result)

    async def transcribe_many(
        self,
        sources: Iterable[str | Path | bytes],
        concurrency: int = 8,
        options: Mapping[str, Any] | None = None,
        want_result: bool = False,
    ) -> AsyncIterator[Transcription | Failure]:
        """As `OfflineClient.transcribe_many`, as an asynchronous iterator."""
        free = asyncio.Semaphore(max(1, concurrency))

        async def one(source: str | Path | bytes) -> Transcription | Failure:
            async with free:
                try:
                    return await self.transcribe_file(source, options, want_result)
                except OasrError as error:
                    return Failure(offline.name_of(source), error)

        tasks = [asyncio.ensure_future(one(source)) for source in sources]
        try:
            for task in tasks:
                yield await task
        finally:
            for task in tasks:
                task.cancel()

    async def __aenter__(self) -> "AsyncOfflineClient":
        return self

    async def _ask(self, clip: Clip, options: Mapping[str, Any] | None, want_result: bool) -> Transcription:
        parameters = request_options.encode(options)
        work = offline.transcribing(clip, parameters, want_result, self._retry_seconds, self._contact)
        return await drive_async(work, self._transport, asyncio.sleep)
