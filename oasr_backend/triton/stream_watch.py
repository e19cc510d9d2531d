"""Watches streams from the outside: what becomes of them in the log, how long their answers take, traces.

Pure but for the log: the clock, the engine's account of its time and the meter come in. Everything but `sent` is called
by the engine thread.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from oasr_backend.engine.metrics import TimeSpent
from oasr_backend.engine.request import RequestOutput
from oasr_backend.triton.request_meter import CHUNK, FINAL, FIRST_PARTIAL, RequestMeter, shown_id
from oasr_backend.triton.request_options import StreamOptions
from oasr_backend.utils.log_lines import event

log = logging.getLogger(__name__)
# Of its own level: whoever asks for a trace gets it, whatever else is logged.
trace_log = logging.getLogger("oasr.trace")
trace_log.setLevel(logging.INFO)


@dataclass
class ChunkRecord:
    """What is known of a request on its way; times are of the watch's clock."""

    received: float = 0.0
    arrived: float = 0.0
    """When the engine thread took it."""
    seconds: float = 0.0
    """Of its audio."""
    number: int = 0
    """In its stream, from 1; 0: not taken."""
    stream: "_Stream | None" = None
    spent: TimeSpent | None = None
    """The engine's time at its arrival, for a trace."""


@dataclass
class _Stream:
    correlation_id: int | str
    request_id: str
    opened: float
    traced: bool
    has_text: bool = False
    chunks: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Answer:
    """An answer that is about to be sent."""

    record: ChunkRecord
    answered: float
    is_final: bool
    is_first_text: bool
    text: str
    spent: TimeSpent | None


@dataclass
class StreamWatch:
    """One for all streams of a model.

    `trace_share`: so many of the streams that do not ask are traced as well. `log_text`: lines may hold the text.
    """

    meter: RequestMeter = field(default_factory=RequestMeter)
    spent: Callable[[], TimeSpent] = TimeSpent
    sample_rate: int = 16000
    trace_share: float = 0.0
    log_text: bool = False
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random)
    _streams: dict[str, _Stream] = field(default_factory=dict)

    def opened(self, record: ChunkRecord, correlation_id: int | str, request_id: str, options: StreamOptions) -> None:
        """A START was taken."""
        traced = options.trace is True or (self.trace_share > 0 and self.rng.random() < self.trace_share)
        stream = _Stream(shown_id(correlation_id), request_id, record.received, traced)
        self._streams[request_id] = stream
        given = [field.name for field in fields(options) if getattr(options, field.name) is not None]
        self._tell(stream, logging.INFO, "stream opened", options=given or None)

    def fed(self, record: ChunkRecord, request_id: str, samples: int) -> None:
        """So many samples, at the engine's rate, were taken into a stream."""
        stream, seconds = self._streams[request_id], samples / self.sample_rate
        stream.chunks += 1
        stream.seconds += seconds
        record.stream, record.number, record.seconds = stream, stream.chunks, seconds
        if stream.traced:
            record.arrived, record.spent = self.clock(), self.spent()

    def ended(self, output: RequestOutput) -> None:
        """The engine is through with a stream."""
        stream = self._streams.pop(output.request_id)
        is_failure = output.finish_reason == "error"
        self._tell(
            stream,
            logging.ERROR if is_failure else logging.INFO,
            "stream failed" if is_failure else "stream closed",
            **self._account(stream),
            reason=output.finish_reason,
            stage=output.error_stage,
            error=output.error,
            text=output.text if self.log_text else None,
        )

    def abandoned(self, request_id: str, reason: str) -> None:
        """A stream was given up: `reaped`, or the code of the refusal that ended it."""
        stream = self._streams.pop(request_id)
        name = "stream reaped" if reason == "reaped" else "stream abandoned"
        self._tell(stream, logging.INFO, name, **self._account(stream), reason=reason)

    def answered(self, record: ChunkRecord, output: RequestOutput, is_final: bool) -> Answer:
        """An answer goes to the senders."""
        stream = record.stream
        is_first_text = stream is not None and bool(output.text) and not stream.has_text
        if stream is not None and is_first_text:
            stream.has_text = True
        spent = self.spent().since(record.spent) if record.spent is not None else None
        return Answer(record, self.clock(), is_final, is_first_text, output.text, spent)

    def sent(self, answer: Answer) -> None:
        """The answer was handed to Triton. Called by a sender thread."""
        now, record = self.clock(), answer.record
        if answer.is_final:
            self.meter.observe(FINAL, now - record.received)
        elif record.seconds:
            self.meter.observe(CHUNK, now - record.received)
        if answer.is_first_text and record.stream is not None:
            self.meter.observe(FIRST_PARTIAL, now - record.stream.opened)
        if answer.spent is not None:
            self._trace(answer, now)

    def _trace(self, answer: Answer, now: float) -> None:
        record, spent, stream = answer.record, answer.spent, answer.record.stream
        assert spent is not None and stream is not None
        stages = {name.partition(".")[2]: _ms(seconds) for name, seconds in spent.stages.items()}
        event(
            trace_log,
            logging.INFO,
            "chunk answered",
            correlation_id=stream.correlation_id,
            request_id=stream.request_id,
            chunk=record.number,
            is_final=answer.is_final,
            audio_ms=_ms(record.seconds),
            received_ms=_ms(record.received - stream.opened),
            queue_ms=_ms(record.arrived - record.received),
            wait_ms=_ms(answer.answered - record.arrived - spent.seconds),
            steps=spent.steps,
            stages_ms=stages,
            other_ms=_ms(spent.seconds - sum(spent.stages.values())),
            send_ms=_ms(now - answer.answered),
            total_ms=_ms(now - record.received),
            text=answer.text if self.log_text else None,
        )

    def _account(self, stream: _Stream) -> dict[str, float | int]:
        return {
            "duration_s": round(self.clock() - stream.opened, 3),
            "audio_s": round(stream.seconds, 3),
            "chunks": stream.chunks,
        }

    def _tell(self, stream: _Stream, level: int, name: str, **fields: object) -> None:
        event(log, level, name, correlation_id=stream.correlation_id, request_id=stream.request_id, **fields)


def _ms(seconds: float) -> float:
    return max(0.0, round(seconds * 1000, 3))
