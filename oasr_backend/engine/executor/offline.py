"""Whole clips, in batches that were chosen by the scheduler."""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.input_processor import InputProcessor
from oasr_backend.engine.metrics import EngineMetrics
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.request import ErrorStage, Request, RequestOutput

log = logging.getLogger(__name__)


class OfflineExecutor:
    """features → forward → decode → finalise; a failing clip fails alone."""

    def __init__(
        self,
        inputs: InputProcessor,
        runner: ModelRunner,
        outputs: OutputProcessor,
        metrics: EngineMetrics,
        partition: Callable[[Sequence[Request]], list[list[int]]],
        packed: bool = False,
    ):
        """`packed` runs a pass as one gapless row instead of a padded batch."""
        self._partition = partition
        self._inputs = inputs
        self._runner = runner
        self._outputs = outputs
        self._metrics = metrics
        self._packed = packed

    def run(self, batch: Sequence[Request]) -> list[RequestOutput]:
        """Outputs in the order of `batch`, which is cut into forward passes by the partition policy."""
        outputs: dict[int, RequestOutput] = {}
        for part in self._partition(batch) if batch else ():
            outputs.update(zip(part, self._run_isolated([batch[index] for index in part]), strict=True))
        return [outputs[index] for index in range(len(batch))]

    def _run_isolated(self, batch: Sequence[Request]) -> list[RequestOutput]:
        """On an error the clips are run again one by one, unless memory ran out."""
        try:
            return self._run(batch)
        except Exception as error:
            out_of_memory = is_out_of_memory(error)
            if len(batch) > 1 and not out_of_memory:
                return [output for request in batch for output in self._run_isolated([request])]
            log.exception("offline batch of %d failed", len(batch))
            stage: ErrorStage = "offline_oom" if out_of_memory else "offline_forward"
            return [failed(request, stage, error) for request in batch]

    def _run(self, batch: Sequence[Request]) -> list[RequestOutput]:
        waves = [request.audio for request in batch if request.audio is not None]
        opened: list[Request] = []
        try:
            for request in batch:
                # A second try must not be taken for the first.
                request.hypothesis = None
                request.transcript = self._outputs.open(request)
                opened.append(request)
            started = time.perf_counter()
            scores, frames, padding = self._encode(waves, self._outputs.needs(batch))
            if scores is not None:
                with self._metrics.stage("offline.decode"):
                    self._outputs.advance(batch, scores, frames)
            self._metrics.observe("engine_step_seconds:offline", time.perf_counter() - started)
            self._metrics.observe("engine_batch_size:offline", len(batch))
            self._metrics.observe("engine_batch_padding_ratio", padding)
            with self._metrics.stage("offline.finalize"):
                return [self._outputs.clip_output(request) for request in batch]
        finally:
            for request in opened:
                transcript, request.transcript = request.live_transcript, None
                try:
                    self._outputs.close(transcript)
                except Exception:
                    log.exception("a clip's decoding state could not be closed")

    def _encode(self, waves: list[np.ndarray], needs: Needs) -> tuple[FrameScores | None, Sequence[int], float]:
        """Scores (None when no clip has a frame), encoder frames of each clip, and the share of padding."""
        collate, encode = self._metrics.stage("offline.collate"), self._metrics.stage("offline.encode")
        if self._packed:
            with collate:
                features, row = self._inputs.packed(waves)
            if not any(row.frames):
                return None, row.frames, 0.0
            with encode:
                return self._runner.forward_packed(features, row, needs), row.frames, 0.0
        with collate:
            features, frames = self._inputs.clips(waves)
        if not any(frames):
            return None, frames, 0.0
        with encode:
            scores = self._runner.forward_clips(features, frames, needs)
        return scores, frames, 1 - sum(frames) / (max(frames) * len(frames))


def is_out_of_memory(error: Exception) -> bool:
    # On CPU torch has no class of its own for it.
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


def failed(request: Request, stage: ErrorStage, error: Exception) -> RequestOutput:
    """The final output of a request that an error ended."""
    return RequestOutput(
        request_id=request.request_id,
        finished=True,
        finish_reason="error",
        error_stage=stage,
        error=f"{type(error).__name__} in {stage}",
        samples_done=request.samples_received,
    )
