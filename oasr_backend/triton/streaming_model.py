"""`oasr_streaming`: a sequence of chunks in, the cumulative text after every chunk out.

Inputs WAV FP32 [1, N] in [-1, 1], PCM INT16 [1, N] or BYTES UINT8 [1, N] of the encoding that START declared, optional
WAV_LENS INT32 [1, 1]; outputs TRANSCRIPTS and RESULT STRING [1].
"""

from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from oasr_backend.engine import RequestOutput
from oasr_backend.triton.base_model import DeskMetrics, EngineModel, Responder, check_request, parsed
from oasr_backend.triton.engine_loop import Desk
from oasr_backend.triton.errors import Refusal, invalid_option
from oasr_backend.triton.options import given_names, parse_options
from oasr_backend.triton.request_meter import CHUNK, FINAL, FIRST_PARTIAL
from oasr_backend.triton.request_options import StreamOptions, foreign_options
from oasr_backend.triton.sequences import Chunk, CorrelationId, SequenceTable
from oasr_backend.triton.settings import ModelSettings
from oasr_backend.triton.stream_watch import ChunkRecord, StreamWatch
from oasr_backend.triton.tensors import input_array, read_rows
from oasr_backend.utils.shown import listed

_NO_SAMPLES = np.zeros(0, dtype=np.float32)
_FOREIGN = foreign_options(StreamOptions)


class _StreamReply:
    def __init__(self, responder: Responder, record: ChunkRecord, watch: StreamWatch):
        self._responder = responder
        self._record = record
        self._watch = watch

    def answer(self, output: RequestOutput, is_final: bool) -> None:
        told = self._watch.answered(self._record, output, is_final)
        self._responder.send_outputs([output], is_final, partial(self._watch.sent, told))

    def refuse(self, refusal: Refusal) -> None:
        self._responder.refuse(refusal)

    def is_cancelled(self) -> bool:
        self._responder.ask_if_cancelled()
        return self._responder.is_cancelled


class StreamingModel(EngineModel):
    """The engine thread owns all sequences; this class only reads requests."""

    scope = "streaming"
    measures = (CHUNK, FIRST_PARTIAL, FINAL)

    def _make_desk(self, settings: ModelSettings) -> Desk:
        engine, adapter = self._engine, settings.adapter
        self._watch = StreamWatch(
            self._meter, lambda: engine.time_spent, engine.sample_rate, adapter.trace_share, adapter.log_text
        )
        self._table = SequenceTable(
            self._engine,
            adapter.max_sequences,
            adapter.idle_seconds,
            adapter.max_queued_seconds,
            adapter.max_total_queued_seconds,
            self._watch,
            adapter.cancelled_seconds,
        )
        return self._table

    def _desk_metrics(self) -> DeskMetrics:
        return DeskMetrics(
            counters={f"sequences_{name}": count for name, count in vars(self._table.counts).items()},
            gauges={
                "sequences_open": self._table.open_sequences,
                "sequences_limit": self._table.limit,
                "sequences_queued_seconds": self._table.queued_seconds,
                "sequences_queued_seconds_limit": self._settings.adapter.max_total_queued_seconds,
            },
        )

    def _submit(self, request: Any, responder: Responder) -> None:
        correlation_id: CorrelationId = request.correlation_id()
        flags = request.flags()
        record = ChunkRecord(received=responder.received)
        reply = _StreamReply(responder, record, self._watch)
        start = bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
        end = bool(flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
        if correlation_id == 0 and not start and not end:
            # Only the server's own warm-up comes without a correlation id.
            check_request(request)
            responder.send_outputs([RequestOutput("warm-up")], is_final=True)
            return
        samples, refusal = parsed(lambda: _samples(request), _NO_SAMPLES)
        options, option_refusal = parsed(lambda: _options(request.parameters(), start), StreamOptions())
        self._loop.submit(Chunk(correlation_id, start, end, samples, options, reply, refusal, option_refusal, record))


def _samples(request: Any) -> np.ndarray:
    rows = read_rows(*(input_array(pb_utils, request, name) for name in ("WAV", "PCM", "WAV_LENS", "BYTES")))
    return rows[0]


def _options(parameters: str, start: bool) -> StreamOptions:
    if start:
        return parse_options(parameters, StreamOptions, _FOREIGN)
    names = given_names(parameters)
    if names:
        raise invalid_option(f"{listed(names)} came after the START; options are taken on the START request only")
    return StreamOptions()
