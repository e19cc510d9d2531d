"""What became of a load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oasr_client.errors import OasrError
from oasr_client.load.times import Times


@dataclass(frozen=True)
class Answer:
    """A chunk of one stream: when it was due, sent and answered, in monotonic seconds.

    Attributes:
        stream: the number of the stream.
        is_final: the answer to the end of the stream.
    """

    stream: int
    due: float
    sent: float
    answered: float
    is_final: bool = False


@dataclass(frozen=True)
class LoadRun:
    """What became of a load.

    Attributes:
        answers: every chunk that was answered.
        texts: the final text by stream, None where it was given up or failed.
        errors: those that streams ended with.
        chunk_s: seconds of audio of a chunk.
        lags_s: how late this process itself was, looked at all along, in seconds.
        gave_up: the load was stopped before its end.
    """

    answers: tuple[Answer, ...]
    texts: tuple[str | None, ...]
    errors: tuple[OasrError, ...]
    chunk_s: float
    lags_s: tuple[float, ...] = ()
    gave_up: bool = False

    @property
    def latency(self) -> Times:
        """From the moment a chunk was due to its answer: a stream that waits for its last answer counts as waiting."""
        return Times.of_seconds(one.answered - one.due for one in self.answers)

    @property
    def partial_latency(self) -> Times:
        """The same of the chunks before the last ones."""
        return Times.of_seconds(one.answered - one.due for one in self.answers if not one.is_final)

    @property
    def final_latency(self) -> Times:
        """The same of the last chunks, whose answer is the final text."""
        return Times.of_seconds(one.answered - one.due for one in self.answers if one.is_final)

    @property
    def client_lag(self) -> Times:
        """How late the client itself was: in sending what was due and could be sent, and in waking up at all."""
        last: dict[int, float] = {}
        late = []
        for one in sorted(self.answers, key=lambda one: one.answered):
            late.append(one.sent - max(one.due, last.get(one.stream, 0.0)))
            last[one.stream] = one.answered
        sending, waking = Times.of_seconds(late), Times.of_seconds(self.lags_s)
        return sending if sending.p99 >= waking.p99 else waking

    @property
    def times_real_time(self) -> float:
        """Audio answered a second while every stream was at work: neither the start nor the end counts."""
        streams = {one.stream for one in self.answers}
        first = max(min(one.answered for one in self.answers if one.stream == stream) for stream in streams)
        last = min(max(one.answered for one in self.answers if one.stream == stream) for stream in streams)
        inside = sum(first < one.answered <= last for one in self.answers)
        return inside * self.chunk_s / (last - first) if last > first else 0.0


def merged(parts: Sequence[tuple[Sequence[int], LoadRun]], streams: int) -> LoadRun:
    """One load of its parts: each with the numbers that its streams have among all of them."""
    texts: list[str | None] = [None] * streams
    for numbers, run in parts:
        for number, text in zip(numbers, run.texts, strict=True):
            texts[number] = text
    return LoadRun(
        tuple(replace(one, stream=numbers[one.stream]) for numbers, run in parts for one in run.answers),
        tuple(texts),
        tuple(error for _, run in parts for error in run.errors),
        parts[0][1].chunk_s,
        tuple(lag for _, run in parts for lag in run.lags_s),
        any(run.gave_up for _, run in parts),
    )
