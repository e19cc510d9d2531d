"""Many streams against a server, from threads of this process."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.timing import Times
from oasr_client import StreamingClient, audio
from oasr_client.errors import OasrError

CHUNK_MS = 640
CHUNK_S = CHUNK_MS / 1000


@dataclass(frozen=True)
class Answer:
    """A chunk of one stream: when it was due, sent and answered, in monotonic seconds."""

    stream: int
    due: float
    sent: float
    answered: float


@dataclass(frozen=True)
class LoadRun:
    """What became of a load. Texts are by stream, None where it was given up or failed."""

    answers: tuple[Answer, ...]
    texts: tuple[str | None, ...]
    errors: tuple[str, ...]

    @property
    def latency(self) -> Times:
        """From the moment a chunk was due to its answer."""
        return Times.of_seconds([one.answered - one.due for one in self.answers])

    @property
    def wake_up(self) -> Times:
        """How late the clients themselves were: a chunk is sent when it is due and the last one is answered."""
        last: dict[int, float] = {}
        late = []
        for one in sorted(self.answers, key=lambda one: one.answered):
            late.append(one.sent - max(one.due, last.get(one.stream, 0.0)))
            last[one.stream] = one.answered
        return Times.of_seconds(late)

    @property
    def times_real_time(self) -> float:
        """Audio answered a second while every stream was at work: neither the start nor the end counts."""
        streams = {one.stream for one in self.answers}
        first = max(min(one.answered for one in self.answers if one.stream == stream) for stream in streams)
        last = min(max(one.answered for one in self.answers if one.stream == stream) for stream in streams)
        inside = sum(first < one.answered <= last for one in self.answers)
        return inside * CHUNK_S / (last - first) if last > first else 0.0


@dataclass
class _Shared:
    """What the threads of a load write to."""

    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)


def closed_loop(url: str, waves: Sequence[np.ndarray]) -> LoadRun:
    """Every stream sends its next chunk when the last one is answered."""
    return _run(url, waves, [None] * len(waves))


def paced(url: str, waves: Sequence[np.ndarray], give_up_s: float, seed: int = 0) -> LoadRun:
    """Every stream sends in real time from a random moment of a chunk on, until one answer takes `give_up_s`."""
    phases = np.random.default_rng(seed).uniform(0, CHUNK_S, len(waves))
    # Connections are made before the first chunk is due.
    begin = time.monotonic() + 1.0
    return _run(url, waves, [begin + phase for phase in phases], give_up_s)


def _run(
    url: str, waves: Sequence[np.ndarray], begins: Sequence[float | None], give_up_s: float = float("inf")
) -> LoadRun:
    shared = _Shared()

    def client(number: int) -> None:
        try:
            with StreamingClient(url) as connection, connection.stream() as stream:
                begin = begins[number]
                for index, chunk in enumerate(audio.chunks(waves[number], CHUNK_MS)):
                    due = time.monotonic() if begin is None else begin + index * CHUNK_S
                    if shared.stop.wait(max(0.0, due - time.monotonic())):
                        return
                    sent = time.monotonic()
                    stream.send(chunk)
                    answered = time.monotonic()
                    shared.answers.append(Answer(number, due, sent, answered))
                    if answered - due > give_up_s:
                        shared.stop.set()
                shared.texts[number] = stream.finish().text
        except OasrError as error:
            shared.errors.append(str(error))
        except BaseException as error:
            shared.errors.append(repr(error))
            raise

    threads = [threading.Thread(target=client, args=(number,)) for number in range(len(waves))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return LoadRun(
        tuple(shared.answers), tuple(shared.texts.get(number) for number in range(len(waves))), tuple(shared.errors)
    )
