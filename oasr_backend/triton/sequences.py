"""The life of a sequence: open → ended early (tombstone) → closed, reaped at any point.

Pure logic: the engine and the replies come in as protocols, time as numbers.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np

from oasr_backend.audio.live import LiveAudio
from oasr_backend.engine.request import RequestOutput
from oasr_backend.triton import errors
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.queue_limits import QueueLimits
from oasr_backend.triton.request_options import StreamOptions
from oasr_backend.triton.results import merged
from oasr_backend.triton.stream_watch import ChunkRecord, StreamWatch

CorrelationId = int | str


class StreamEngine(Protocol):
    """What a sequence needs of the engine."""

    @property
    def sample_rate(self) -> int: ...

    @property
    def max_streams(self) -> int: ...

    @property
    def free_streams(self) -> int: ...

    def add_streaming_request(
        self, *, chunk_size: int | None = None, decoding: Mapping[str, Any] | None = None
    ) -> str: ...

    def feed_chunk(self, request_id: str, chunk: np.ndarray, is_last: bool = False) -> None: ...

    def abort_request(self, request_id: str) -> bool: ...


class Reply(Protocol):
    """The one answer that a Triton request gets."""

    def answer(self, output: RequestOutput, is_final: bool) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...

    def is_cancelled(self) -> bool:
        """Whether the client is known to have taken the request back; asked again and again."""
        ...


@dataclass(frozen=True)
class Chunk:
    """A Triton request of a sequence as it arrived.

    `samples` [n] float32, int16, or uint8 of the encoding that START declared; `refusal` says why the audio cannot be
    taken, `option_refusal` why the options cannot.
    """

    correlation_id: CorrelationId
    start: bool
    end: bool
    samples: np.ndarray
    options: StreamOptions
    reply: Reply
    refusal: Refusal | None = None
    option_refusal: Refusal | None = None
    record: ChunkRecord = field(default_factory=ChunkRecord)


class SequenceState(Enum):
    OPEN = "open"
    ENDING = "ending"
    TOMBSTONE = "tombstone"


@dataclass
class _Pending:
    reply: Reply
    until: int
    """Samples at the engine's rate."""
    seconds: float
    """Audio up to its end, with what was held back of it."""
    end: bool


@dataclass
class Sequence:
    """One stream as its client sees it.

    `received` and `done` count samples at the engine's rate: those that it got, and those whose text is known. Where
    `resumes_at` is set, a chunk was refused because too much waited: the stream takes audio again when no more seconds
    than that are queued. `newest` is the reply of the request that came last; `left_since` is when the client was found
    to wait for no answer.
    """

    correlation_id: CorrelationId
    request_id: str
    audio: LiveAudio
    output: RequestOutput
    last_seen: float
    newest: Reply
    left_since: float | None = None
    state: SequenceState = SequenceState.OPEN
    received: int = 0
    done: int = 0
    resumes_at: float | None = None
    pending: deque[_Pending] = field(default_factory=deque)


@dataclass
class SequenceCounts:
    """What happened so far; `refused` counts requests, `held_back` those of them that came too far ahead, the others
    count sequences.
    """

    started: int = 0
    finished: int = 0
    refused: int = 0
    held_back: int = 0
    failed: int = 0
    reaped: int = 0
    cancelled: int = 0
    restarted: int = 0
    resumed: int = 0


class SequenceTable:
    """Every sequence that lives, by correlation id and by engine request.

    A sequence whose END was taken gives its id up at once, so that a START may follow while its text is still awaited.
    """

    def __init__(
        self,
        engine: StreamEngine,
        max_sequences: int,
        idle_seconds: float,
        max_queued_seconds: float,
        max_total_queued_seconds: float,
        watch: StreamWatch | None = None,
        cancelled_seconds: float = math.inf,
    ):
        self._engine = engine
        # The engine has a place for every stream that its page pool serves.
        self._limit = min(max_sequences, engine.max_streams)
        self._limited_by = "max_sequences" if max_sequences <= engine.max_streams else "the page pool"
        self._idle_seconds = idle_seconds
        self._cancelled_seconds = cancelled_seconds
        self._queue = QueueLimits(max_queued_seconds, max_total_queued_seconds, self._limit)
        self._by_id: dict[CorrelationId, Sequence] = {}
        self._by_request: dict[str, Sequence] = {}
        self._watch = watch or StreamWatch()
        self.counts = SequenceCounts()

    @property
    def open_sequences(self) -> int:
        """Sequences that hold an engine stream."""
        return len(self._by_request)

    @property
    def limit(self) -> int:
        """The most sequences that may hold an engine stream."""
        return self._limit

    @property
    def queued_seconds(self) -> float:
        """Audio of all streams that has been taken in and not decoded yet."""
        return sum(map(self._queued, self._by_request.values()))

    @property
    def tombstones(self) -> int:
        return sum(sequence.state is SequenceState.TOMBSTONE for sequence in self._by_id.values())

    @property
    def expects_more(self) -> bool:
        """Whether an open stream has no request in."""
        return any(not sequence.pending for sequence in self._by_request.values())

    def arrive(self, chunk: Chunk, now: float) -> None:
        """Takes a request in; its reply is used exactly once, now or later."""
        try:
            self._arrive(chunk, now)
        except Refusal as refusal:
            self.counts.refused += 1
            chunk.reply.refuse(refusal)

    def _arrive(self, chunk: Chunk, now: float) -> None:
        if chunk.start:
            self._start(chunk, now)
        sequence = self._by_id.get(chunk.correlation_id)
        if sequence is None:
            raise errors.unknown_stream(chunk.correlation_id)
        sequence.last_seen = now
        sequence.newest, sequence.left_since = chunk.reply, None
        if sequence.state is SequenceState.TOMBSTONE:
            self._at_tombstone(sequence, chunk)
            return
        try:
            self._feed(sequence, chunk)
        except Refusal as refusal:
            if chunk.end:
                # Triton has closed the sequence; nothing could follow.
                self._abandon(sequence, refusal)
            raise

    def _start(self, chunk: Chunk, now: float) -> None:
        earlier = self._by_id.get(chunk.correlation_id)
        if earlier is not None:
            self.counts.restarted += 1
            self._abandon(earlier, errors.restarted())
        if chunk.option_refusal is not None:
            raise chunk.option_refusal
        if self.open_sequences >= self._limit or self._engine.free_streams < 1:
            raise errors.full(self.open_sequences, self._limit, self._limited_by, self.queued_seconds)
        try:
            request_id = self._engine.add_streaming_request(
                chunk_size=chunk.options.chunk_size, decoding=chunk.options.decoding
            )
        except (ValueError, TypeError) as error:
            raise errors.invalid_option(str(error)) from error
        audio = LiveAudio(chunk.options.audio_format)
        sequence = Sequence(chunk.correlation_id, request_id, audio, RequestOutput(request_id), now, chunk.reply)
        self._by_id[chunk.correlation_id] = sequence
        self._by_request[request_id] = sequence
        self.counts.started += 1
        self.counts.resumed += chunk.options.oasr_resumed is True
        self._watch.opened(chunk.record, chunk.correlation_id, request_id, chunk.options)

    def _feed(self, sequence: Sequence, chunk: Chunk) -> None:
        if chunk.refusal is not None:
            raise chunk.refusal
        if not chunk.start and chunk.option_refusal is not None:
            raise chunk.option_refusal
        self._check_room(sequence, chunk)
        try:
            samples = sequence.audio.take(chunk.samples, chunk.end)
            self._engine.feed_chunk(sequence.request_id, samples, chunk.end)
        except (ValueError, TypeError) as error:
            raise errors.invalid_input(str(error)) from error
        sequence.received += len(samples)
        self._watch.fed(chunk.record, sequence.request_id, len(samples))
        sequence.pending.append(_Pending(chunk.reply, sequence.received, sequence.audio.seconds, chunk.end))
        if chunk.end:
            sequence.state = SequenceState.ENDING
            del self._by_id[sequence.correlation_id]
        self._answer_done(sequence)

    def _check_room(self, sequence: Sequence, chunk: Chunk) -> None:
        """Raises Refusal for audio beyond what may wait.

        The END of a stream that has audio in is let through, whatever waits: Triton has closed the sequence, and what
        was taken in before would be lost with it.
        """
        seconds = sequence.audio.seconds_of(chunk.samples)
        limits = self._queue
        if seconds > limits.stream_seconds:
            raise errors.chunk_too_long(seconds, limits.stream_seconds)
        if not seconds or (chunk.end and sequence.received):
            return
        queued = self._queued(sequence)
        others = [self._queued(one) for one in self._by_request.values() if one is not sequence]
        bound = limits.broken_by(queued + seconds, others)
        if bound is not None:
            sequence.resumes_at = limits.resumes_at(bound)
        elif sequence.resumes_at is None or queued <= sequence.resumes_at:
            sequence.resumes_at = None
            return
        self.counts.held_back += 1
        if bound == "total":
            raise errors.streams_are_ahead(queued + sum(others), limits.total_seconds, queued, sequence.resumes_at)
        raise errors.stream_is_ahead(queued, limits.stream_seconds, sequence.resumes_at)

    def _queued(self, sequence: Sequence) -> float:
        return (sequence.received - sequence.done) / self._engine.sample_rate

    def _at_tombstone(self, sequence: Sequence, chunk: Chunk) -> None:
        failed = sequence.output.finish_reason == "error"
        reason = sequence.output.error or "error" if failed else sequence.output.finish_reason or "unknown"
        if chunk.end:
            del self._by_id[sequence.correlation_id]
            if not failed:
                _answer(_Pending(chunk.reply, sequence.received, sequence.audio.seconds, end=True), sequence)
                return
        raise errors.stream_failed(reason) if failed else errors.stream_ended(reason)

    def deliver(self, outputs: Iterable[RequestOutput], now: float) -> None:
        """Passes the engine's outputs on to the requests that they answer."""
        for output in outputs:
            sequence = self._by_request.get(output.request_id)
            if sequence is None:
                continue
            sequence.output = _with_untold(output, sequence.output)
            sequence.done = output.samples_done
            sequence.last_seen = now
            if output.finished:
                self._finish(sequence)
            else:
                self._answer_done(sequence)

    def _answer_done(self, sequence: Sequence) -> None:
        pending = sequence.pending
        while pending and not pending[0].end and pending[0].until <= sequence.done:
            _answer(pending.popleft(), sequence)
            # Once is enough.
            sequence.output = replace(sequence.output, endpoint=None, speech_events=None)

    def _finish(self, sequence: Sequence) -> None:
        del self._by_request[sequence.request_id]
        output = sequence.output
        ended_by_client = sequence.state is SequenceState.ENDING
        if output.finish_reason == "error":
            self.counts.failed += 1
        else:
            self.counts.finished += 1
        sequence.audio.close()
        while sequence.pending:
            item = sequence.pending.popleft()
            if output.finish_reason == "error":
                item.reply.refuse(errors.stream_failed(output.error or "error"))
            elif ended_by_client:
                _answer(item, sequence)
            else:
                item.reply.refuse(errors.stream_ended(output.finish_reason or "unknown"))
        if not ended_by_client:
            # Triton goes on forwarding its chunks until END or idle.
            sequence.state = SequenceState.TOMBSTONE
        self._watch.ended(output)

    def _abandon(self, sequence: Sequence, refusal: Refusal, reason: str = "") -> None:
        """`reason` is what the log says, by default the code of `refusal`."""
        if self._by_id.get(sequence.correlation_id) is sequence:
            del self._by_id[sequence.correlation_id]
        if self._by_request.pop(sequence.request_id, None) is not None:
            self._engine.abort_request(sequence.request_id)
            self._watch.abandoned(sequence.request_id, reason or refusal.code)
        while sequence.pending:
            sequence.pending.popleft().reply.refuse(refusal)

    def reap(self, now: float) -> None:
        """Frees sequences that were left or idle for too long: Triton tells nobody when it expires one."""
        for sequence in list(self._by_request.values()):
            if self._is_left(sequence, now):
                self.counts.cancelled += 1
                self._abandon(sequence, errors.unknown_stream(sequence.correlation_id), "cancelled")
        for sequence in list(self._by_id.values()):
            if not sequence.pending and now - sequence.last_seen > self._idle_seconds:
                if sequence.state is SequenceState.OPEN:
                    self.counts.reaped += 1
                self._abandon(sequence, errors.unknown_stream(sequence.correlation_id), "reaped")

    def _is_left(self, sequence: Sequence, now: float) -> bool:
        """Whether the client waits for no answer and has sent nothing since that was found.

        A cancelled request alone does not tell: its audio was taken, Triton keeps the sequence, and the next chunk goes
        on with it.
        """
        if sequence.left_since is None:
            # The newest first: of most streams one question is enough.
            if sequence.newest.is_cancelled():
                # All of them, as an answer comes at the next call.
                cancelled = [item.reply.is_cancelled() for item in sequence.pending]
                sequence.left_since = now if all(cancelled) else None
            return False
        return now - sequence.left_since >= self._cancelled_seconds

    def close(self, refusal: Refusal) -> None:
        """Ends every sequence; whoever waits gets `refusal`."""
        for sequence in [*self._by_id.values(), *self._by_request.values()]:
            self._abandon(sequence, refusal)


def _answer(item: _Pending, sequence: Sequence) -> None:
    """Answers with where the stream stands, and with what is to say of its audio."""
    output, warnings = sequence.output, sequence.audio.warnings
    if output.audio_seconds < item.seconds:
        # The engine has not got what the resampler holds back.
        output = replace(output, audio_seconds=item.seconds)
    if warnings:
        output = replace(output, warnings=merged(output.warnings, warnings))
    item.reply.answer(output, is_final=item.end)


def _with_untold(output: RequestOutput, earlier: RequestOutput) -> RequestOutput:
    """An output with what an earlier one said that no answer has carried."""
    events = output.speech_events
    if earlier.speech_events and events is not None:
        events = (*earlier.speech_events, *events)
    return replace(output, endpoint=output.endpoint or earlier.endpoint, speech_events=events)
