"""Many streams against a server, from one event loop."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oasr_client import audio, transport
from oasr_client.aio import AsyncStreamingClient
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.errors import OasrError
from oasr_client.load.run import Answer, LoadRun

# The first chunk is due so much later, when all streams are there.
_LEAD_S = 0.2
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


@dataclass
class _Load:
    """What the streams of one load share. Phases are in seconds; None: as fast as chunks are answered."""

    target: Target
    give_up_s: float
    phases: Sequence[float] | None
    begin: float = 0.0
    stopped: bool = False
    answers: list[Answer] = field(default_factory=list)
    errors: list[OasrError] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)

    async def run(self, waves: Sequence[audio.Samples]) -> LoadRun:
        watch = asyncio.ensure_future(self._watch())
        try:
            target = self.target
            async with AsyncStreamingClient(
                target.url,
                target.protocol,
                target.timeout_s,
                model_version=target.model_version,
                credentials=target.credentials,
            ) as client:
                self.begin = time.monotonic() + _LEAD_S
                await asyncio.gather(*(self._stream(client, number, wave) for number, wave in enumerate(waves)))
        finally:
            watch.cancel()
        texts = tuple(self.texts.get(number) for number in range(len(waves)))
        return LoadRun(
            tuple(self.answers), texts, tuple(self.errors), self.target.chunk_s, tuple(self.lags_s), self.stopped
        )

    async def _stream(self, client: AsyncStreamingClient, number: int, wave: audio.Samples) -> None:
        chunks = list(audio.chunks(wave, self.target.chunk_ms))
        try:
            async with client.stream(self.target.options) as stream:
                sent_s = 0.0
                for index, chunk in enumerate(chunks):
                    sent_s += audio.seconds(chunk)
                    is_final = index == len(chunks) - 1
                    due = await self._due(number, sent_s)
                    if self.stopped:
                        return
                    sent = time.monotonic()
                    response = await (stream.finish(chunk) if is_final else stream.send(chunk))
                    answered = time.monotonic()
                    self.answers.append(Answer(number, due, sent, answered, is_final))
                    self.stopped = self.stopped or answered - due > self.give_up_s
                self.texts[number] = response.text
        except OasrError as error:
            self.errors.append(error)
            self.stopped = True

    async def _due(self, number: int, sent_s: float) -> float:
        """When a chunk that ends so many seconds into its stream is due; returns then."""
        if self.phases is None:
            return time.monotonic()
        due = self.begin + self.phases[number] + sent_s
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
    return asyncio.run(_Load(target, float("inf"), None).run(waves))


def paced(target: Target, waves: Sequence[audio.Samples], give_up_s: float, seed: int = 0) -> LoadRun:
    """Every stream sends in real time, from a random moment of a chunk on.

    The first error, or an answer later than `give_up_s`, ends them all.
    """
    rng = random.Random(seed)
    phases = [rng.uniform(0, target.chunk_s) for _ in waves]
    return asyncio.run(_Load(target, give_up_s, phases).run(waves))
