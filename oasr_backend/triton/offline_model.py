"""`oasr_offline`: whole clips in, their text out.

Inputs WAV FP32 [B, N] in [-1, 1] or PCM INT16 [B, N], optional WAV_LENS INT32 [B, 1]; outputs TRANSCRIPTS and RESULT
STRING [B]. Triton only delivers; the engine batches.
"""

from typing import Any

import triton_python_backend_utils as pb_utils

from oasr_backend.engine import RequestOutput
from oasr_backend.triton.base_model import DeskMetrics, EngineModel, Responder, check_request, parsed
from oasr_backend.triton.clips import ClipBatch, ClipTable
from oasr_backend.triton.engine_loop import Desk
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.options import parse_options
from oasr_backend.triton.request_options import ClipOptions, foreign_options
from oasr_backend.triton.settings import ModelSettings
from oasr_backend.triton.tensors import input_array, read_rows

_FOREIGN = foreign_options(ClipOptions)


class _ClipReply:
    def __init__(self, responder: Responder):
        self._responder = responder

    def answer(self, outputs: list[RequestOutput]) -> None:
        self._responder.send_outputs(outputs, is_final=True)

    def refuse(self, refusal: Refusal) -> None:
        self._responder.refuse(refusal)


class OfflineModel(EngineModel):
    """The engine thread owns the queue; this class only reads requests."""

    scope = "offline"
    _warmed = False

    def _make_desk(self, settings: ModelSettings) -> Desk:
        adapter = settings.adapter
        self._table = ClipTable(self._engine, adapter.max_queued_clips, adapter.max_queued_clip_seconds)
        return self._table

    def _desk_metrics(self) -> DeskMetrics:
        return DeskMetrics(
            counters={
                "clip_requests_finished": self._table.finished,
                "clip_requests_refused": self._table.refused,
                "clip_requests_failed": self._table.failed,
            },
            gauges={
                "clips_queued": self._table.queued,
                "clips_limit": self._settings.adapter.max_queued_clips,
                "clips_queued_seconds": self._table.queued_seconds,
                "clips_queued_seconds_limit": self._settings.adapter.max_queued_clip_seconds,
            },
        )

    def _submit(self, request: Any, responder: Responder) -> None:
        if not self._warmed:
            check_request(request)
            self._warmed = True
        reply = _ClipReply(responder)
        options, refusal = parsed(lambda: parse_options(request.parameters(), ClipOptions, _FOREIGN), ClipOptions())
        if refusal is None:
            clips, refusal = parsed(lambda: _clips(request), ())
        else:
            clips = ()
        self._loop.submit(ClipBatch(clips, options, reply, refusal))


def _clips(request: Any) -> tuple[Any, ...]:
    return tuple(read_rows(*(input_array(pb_utils, request, name) for name in ("WAV", "PCM", "WAV_LENS"))))
