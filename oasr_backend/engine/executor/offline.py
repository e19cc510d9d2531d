"""Whole clips, in batches that were chosen by the scheduler."""

import logging
import time
from collections.abc import Callable, Sequence

import torch

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
    ):
        self._partition = partition
        self._inputs = inputs
        self._runner = runner
        self._outputs = outputs
        self._metrics = metrics

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
            # On CPU torch has no class of its own for it.
            out_of_memory = isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)
            if len(batch) > 1 and not out_of_memory:
                return [output for request in batch for output in self._run_isolated([request])]
            log.exception("offline batch of %d failed", len(batch))
            stage: ErrorStage = "offline_oom" if out_of_memory else "offline_forward"
            self._metrics.count(f"requests_failed:{stage}", len(batch))
            return [failed(request, stage, error) for request in batch]

    def _run(self, batch: Sequence[Request]) -> list[RequestOutput]:
        waves = [request.audio for request in batch if request.audio is not None]
        sessions = [self._outputs.open() for _ in batch]
        try:
            started = time.monotonic()
            features, frames = self._inputs.clips(waves)
            longest = max(frames)
            if longest:
                scores = self._runner.forward_clips(features, frames)
                self._outputs.advance(sessions, scores, frames)
            self._metrics.observe("step_seconds:offline", time.monotonic() - started)
            self._metrics.observe("batch_size:offline", len(batch))
            self._metrics.observe("padding_ratio", 1 - sum(frames) / (longest * len(batch)) if longest else 0.0)
            return [
                self._outputs.clip_output(request, session) for request, session in zip(batch, sessions, strict=True)
            ]
        finally:
            for session in sessions:
                self._outputs.close(session)


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
