"""`oasr_offline`: whole clips in, their text out.

Inputs WAV FP32 [B, N] in [-1, 1] or PCM INT16 [B, N], optional WAV_LENS INT32 [B, 1]; outputs TRANSCRIPTS and RESULT
STRING [B]. AUDIO_INFO STRING [B, 1] comes with what `audio_decode` decoded. Triton only delivers; the engine batches.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from oasr_backend.audio.bandwidth import NARROW_BAND, is_narrow_band
from oasr_backend.engine import RequestOutput
from oasr_backend.triton.audio_info import read_warnings
from oasr_backend.triton.base_model import DeskMetrics, EngineModel, Responder, check_request, parsed
from oasr_backend.triton.clips import ClipBatch, ClipTable
from oasr_backend.triton.engine_loop import Desk
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.options import parse_options
from oasr_backend.triton.request_meter import CLIP, RequestMeter
from oasr_backend.triton.request_options import FILE_OPTIONS, ClipOptions, foreign_options
from oasr_backend.triton.results import merged
from oasr_backend.triton.settings import ModelSettings
from oasr_backend.triton.tensors import input_array, read_rows
from oasr_backend.utils.log_lines import event

log = logging.getLogger(__name__)

_FOREIGN = foreign_options(ClipOptions)


class _ClipReply:
    def __init__(self, responder: Responder, meter: RequestMeter):
        self._responder = responder
        self._meter = meter
        self.warnings: list[tuple[str, ...]] = []
        """Of each clip's audio; none where nobody looks at them."""

    def answer(self, outputs: list[RequestOutput]) -> None:
        if self.warnings:
            outputs = [
                replace(output, warnings=merged(output.warnings, more))
                for output, more in zip(outputs, self.warnings, strict=True)
            ]
        self._responder.send_outputs(outputs, is_final=True, then=partial(self._sent, outputs))

    def _sent(self, outputs: list[RequestOutput]) -> None:
        seconds = time.monotonic() - self._responder.received
        self._meter.observe(CLIP, seconds)
        audio_s = round(sum(output.audio_seconds for output in outputs), 3)
        event(log, logging.INFO, "clips answered", clips=len(outputs), audio_s=audio_s, duration_s=round(seconds, 3))

    def refuse(self, refusal: Refusal) -> None:
        self._responder.refuse(refusal)

    def drop(self) -> None:
        self._responder.drop()

    @property
    def is_cancelled(self) -> bool:
        return self._responder.is_cancelled

    def ask_if_cancelled(self) -> None:
        self._responder.ask_if_cancelled()


class OfflineModel(EngineModel):
    """The engine thread owns the queue; this class only reads requests."""

    scope = "offline"
    measures = (CLIP,)
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
                "clip_requests_cancelled": self._table.cancelled,
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
        reply = _ClipReply(responder, self._meter)
        infos = input_array(pb_utils, request, "AUDIO_INFO")
        # Options of a file are `audio_decode`'s, and only it can have honoured them.
        elsewhere = () if infos is None else FILE_OPTIONS
        options, refusal = parsed(
            lambda: parse_options(request.parameters(), ClipOptions, _FOREIGN, elsewhere), ClipOptions()
        )
        clips: tuple[np.ndarray, ...] = ()
        if refusal is None:
            clips, refusal = parsed(lambda: _clips(request), ())
        if responder.wants_result:
            told, refusal = parsed(lambda: _warnings(clips, infos), ()) if refusal is None else ((), refusal)
            reply.warnings = list(told)
        self._loop.submit(ClipBatch(clips, options, reply, refusal))


def _warnings(clips: Sequence[np.ndarray], infos: np.ndarray | None) -> list[tuple[str, ...]]:
    """What there is to say of each clip's audio."""
    if infos is not None:
        return read_warnings(infos, len(clips))
    return [(NARROW_BAND,) if is_narrow_band(clip) else () for clip in clips]


def _clips(request: Any) -> tuple[np.ndarray, ...]:
    return tuple(read_rows(*(input_array(pb_utils, request, name) for name in ("WAV", "PCM", "WAV_LENS"))))
