"""`oasr_offline`: whole clips in, their text out.

Inputs WAV FP32 [B, N] in [-1, 1] or PCM INT16 [B, N], optional WAV_LENS INT32 [B, 1]; outputs TRANSCRIPTS and RESULT
STRING [B]. Triton only delivers; the engine batches.
"""

import logging
import time
from functools import partial
from typing import Any

import triton_python_backend_utils as pb_utils

from oasr_backend.engine import RequestOutput
from oasr_backend.triton.base_model import DeskMetrics, EngineModel, Responder, check_request, parsed
from oasr_backend.triton.clips import ClipBatch, ClipTable
from oasr_backend.triton.engine_loop import Desk
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.options import parse_options
from oasr_backend.triton.request_meter import CLIP, RequestMeter
from oasr_backend.triton.request_options import ClipOptions
from oasr_backend.triton.settings import ModelSettings
from oasr_backend.triton.tensors import input_array, read_rows
from oasr_backend.utils.log_lines import event

log = logging.getLogger(__name__)


class _ClipReply:
    def __init__(self, responder: Responder, meter: RequestMeter):
        self._responder = responder
        self._meter = meter

    def answer(self, outputs: list[RequestOutput]) -> None:
        self._responder.send_outputs(outputs, is_final=True, then=partial(self._sent, outputs))

    def _sent(self, outputs: list[RequestOutput]) -> None:
        seconds = time.monotonic() - self._responder.received
        self._meter.observe(CLIP, seconds)
        audio_s = round(sum(output.audio_seconds for output in outputs), 3)
        event(log, logging.INFO, "clips answered", clips=len(outputs), audio_s=audio_s, duration_s=round(seconds, 3))

    def refuse(self, refusal: Refusal) -> None:
        self._responder.refuse(refusal)


class OfflineModel(EngineModel):
    """The engine thread owns the queue; this class only reads requests."""

    scope = "offline"
    measures = (CLIP,)
    _warmed = False

    def _make_desk(self, settings: ModelSettings) -> Desk:
        self._table = ClipTable(self._engine, settings.adapter.max_queued_clips)
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
            },
        )

    def _submit(self, request: Any, responder: Responder) -> None:
        if not self._warmed:
            check_request(request)
            self._warmed = True
        reply = _ClipReply(responder, self._meter)
        options, refusal = parsed(lambda: parse_options(request.parameters(), ClipOptions), ClipOptions())
        if refusal is None:
            clips, refusal = parsed(lambda: _clips(request), ())
        else:
            clips = ()
        self._loop.submit(ClipBatch(clips, options, reply, refusal))


def _clips(request: Any) -> tuple[Any, ...]:
    return tuple(read_rows(*(input_array(pb_utils, request, name) for name in ("WAV", "PCM", "WAV_LENS"))))
