"""Many streams against a server, from one event loop."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from oasr_client import audio, transport
from oasr_client.aio import AsyncStreamingClient
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.errors import OasrError
from oasr_client.load.run import Answer, LoadRun

LEAD_S = 0.2
"""The streams begin so much later than they are told to, when all are there."""
_WATCH_S = 0.02


@dataclass(frozen=True)
class Target:
    """Where streams go and how.

    Attributes:
        url: HOST:PORT, None for the default of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for the answer to a chunk.
        chunk_ms: audio of a chunk in milliseconds.
        options: options of every stream.
        credentials: token and TLS.
        model_version: None for the highest.
    """

    url: str | None = None
    protocol: str = "grpc"
    timeout_s: float = transport.DEFAULT_TIMEOUT_S
    chunk_ms: float = 640.0
    options: Mapping[str, Any] = field(default_factory=dict)
    credentials: Credentials = ANONYMOUS
    model_version: int | None = None

    @property
    def chunk_s(self) -> float:
        return self.chunk_ms / 1000


@dataclass(frozen=True)
class Share:
    """Streams of one process.

    Attributes:
        target: where they go.
        waves: [samples] int16 at 16 kHz, one of every stream.
        phases: seconds after which each begins; None: every chunk is sent as soon as the last one is answered.
        give_up_s: all end when an answer is later.
    """

    target: Target
    waves: Sequence[audio.Samples]
    phases: Sequence[float] | None
    give_up_s: float = float("inf")


class Stop(Protocol):
    """Whether all streams are to end, those of other processes too."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...


@dataclass
class _Load:
    """What the streams of a share have in common."""

    share: Share
    stop: Stop
    begin: float = 0.0
    answers: list[Answer] = field(default_factory=list)
    errors: list[OasrError] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)

    async def run(self, when: Callable[[], float]) -> LoadRun:
        target, waves = self.share.target, self.share.waves
        watch: asyncio.Task[None] | None = None
        try:
            async with AsyncStreamingClient(
                target.url,
                target.protocol,
                target.timeout_s,
                model_version=target.model_version,
                credentials=target.credentials,
            ) as client:
                self.begin = when()
                watch = asyncio.create_task(self._watch())
                await asyncio.gather(*(self._stream(client, number, wave) for number, wave in enumerate(waves)))
        finally:
            if watch is not None:
                watch.cancel()
        texts = tuple(self.texts.get(number) for number in range(len(waves)))
        return LoadRun(
            tuple(self.answers), texts, tuple(self.errors), target.chunk_s, tuple(self.lags_s), self.stop.is_set()
        )

    async def _stream(self, client: AsyncStreamingClient, number: int, wave: audio.Samples) -> None:
        target = self.share.target
        chunks = list(audio.chunks(wave, target.chunk_ms))
        try:
            async with client.stream(target.options) as stream:
                sent_s = 0.0
                for index, chunk in enumerate(chunks):
                    sent_s += audio.seconds(chunk)
                    is_final = index == len(chunks) - 1
                    due = await self._due(number, sent_s)
                    if self.stop.is_set():
                        return
                    sent = time.monotonic()
                    response = await (stream.finish(chunk) if is_final else stream.send(chunk))
                    answered = time.monotonic()
                    self.answers.append(Answer(number, due, sent, answered, is_final))
                    if answered - due > self.share.give_up_s:
                        self.stop.set()
                self.texts[number] = response.text
        except OasrError as error:
            self.errors.append(error)
            self.stop.set()

    async def _due(self, number: int, sent_s: float) -> float:
        """When a chunk that ends so many seconds into its stream is due; returns then."""
        if self.share.phases is None:
            return time.monotonic()
        due = self.begin + self.share.phases[number] + sent_s
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return due

    async def _watch(self) -> None:
        while True:
            due = time.monotonic() + _WATCH_S
            await asyncio.sleep(_WATCH_S)
            self.lags_s.append(time.monotonic() - due)


def closed_loop(target: Target, waves: Sequence[audio.Samples]) -> LoadRun:
    """Every stream sends its next chunk when the last one is answered; the first error ends them all.

    Args:
        waves: [samples] int16 at 16 kHz, one of every stream.
    """
    return run_share(Share(target, waves, None), threading.Event(), _soon)


def paced(target: Target, waves: Sequence[audio.Samples], give_up_s: float, seed: int = 0) -> LoadRun:
    """Every stream sends in real time, from a random moment of a chunk on.

    The first error, or an answer later than `give_up_s`, ends them all.
    """
    share = Share(target, waves, phases_of(target, len(waves), seed), give_up_s)
    return run_share(share, threading.Event(), _soon)


def phases_of(target: Target, streams: int, seed: int) -> list[float]:
    """Seconds, below a chunk, after which each of so many streams begins."""
    rng = random.Random(seed)
    return [rng.uniform(0, target.chunk_s) for _ in range(streams)]


def run_share(share: Share, stop: Stop, when: Callable[[], float]) -> LoadRun:
    """Runs the streams of one process, and tells of them under their numbers in it.

    Args:
        when: called when all is prepared; the monotonic second at which they are to begin.
    """
    return asyncio.run(_Load(share, stop).run(when))


def _soon() -> float:
    return time.monotonic() + LEAD_S
