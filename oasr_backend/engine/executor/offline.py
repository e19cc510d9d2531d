"""Whole clips, in batches that were chosen by the scheduler."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.input_processor import InputProcessor
from oasr_backend.engine.metrics import EngineMetrics
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.request import ErrorStage, Request, RequestOutput

log = logging.getLogger(__name__)


@dataclass
class _Pass:
    """A forward pass that was begun and whose scores wait to be decoded."""

    requests: Sequence[Request]
    scores: FrameScores | None
    """None when no clip has a frame."""
    frames: Sequence[int]
    padding: float
    seconds: float
    """Host time so far."""


Ended = tuple[Request, RequestOutput]


class OfflineExecutor:
    """features → forward → decode → finalise; a failing clip fails alone.

    Where the device works on its own, a pass is decoded behind the forward pass of the next, so that the device has
    work meanwhile: the last pass of a batch in the next step, unless nothing waits for that.
    """

    def __init__(
        self,
        inputs: InputProcessor,
        runner: ModelRunner,
        outputs: OutputProcessor,
        metrics: EngineMetrics,
        partition: Callable[[Sequence[Request]], list[list[int]]],
        packed: bool = False,
        overlap: bool = False,
    ):
        """`packed` runs a pass as one gapless row instead of a padded batch; `overlap` collates a pass and queues its
        forward before the one before it is decoded.
        """
        self._partition = partition
        self._inputs = inputs
        self._runner = runner
        self._outputs = outputs
        self._metrics = metrics
        self._packed = packed
        self._overlap = overlap
        self._held: _Pass | None = None
        # Held requests whose output nobody wants any more.
        self._withdrawn: set[str] = set()

    def __len__(self) -> int:
        """Requests that are held for a later step."""
        return 0 if self._held is None else len(self._held.requests) - len(self._withdrawn)

    def __contains__(self, request_id: str) -> bool:
        held = [] if self._held is None else self._held.requests
        return any(request.request_id == request_id for request in held) and request_id not in self._withdrawn

    @property
    def is_holding(self) -> bool:
        """Whether a step has something to decode even without a batch."""
        return self._held is not None

    def withdraw(self, request_id: str) -> Request:
        """Ends a held request without an output."""
        assert self._held is not None and request_id in self
        self._withdrawn.add(request_id)
        return next(request for request in self._held.requests if request.request_id == request_id)

    def clear(self) -> None:
        """Forgets what is held."""
        held, self._held = self._held, None
        self._withdrawn.clear()
        if held is not None:
            self._close(held.requests)

    def run(self, batch: Sequence[Request], more_waits: bool = False) -> list[Ended]:
        """What ended, in the order of `batch`, behind what an earlier step held.

        The batch is cut into forward passes by the partition policy. `more_waits`: another batch comes next.
        """
        ended: list[Ended] = []
        for part in self._partition(batch) if batch else ():
            requests = [batch[index] for index in part]
            try:
                begun = self._begin(requests)
            except Exception as error:
                ended += self._again(requests, error)
                continue
            ended += self._take_held()
            self._held = begun
            if not self._overlap:
                ended += self._take_held()
        if not (batch and more_waits):
            ended += self._take_held()
        place = {request.request_id: index for index, request in enumerate(batch)}
        return sorted(ended, key=lambda one: place.get(one[0].request_id, -1))

    def _take_held(self) -> list[Ended]:
        """Decodes the pass that is held."""
        held, self._held = self._held, None
        if held is None:
            return []
        withdrawn, self._withdrawn = self._withdrawn, set()
        try:
            ended = list(zip(held.requests, self._finish(held), strict=True))
        except Exception as error:
            ended = self._again([one for one in held.requests if one.request_id not in withdrawn], error)
        return [one for one in ended if one[0].request_id not in withdrawn]

    def _again(self, requests: Sequence[Request], error: Exception) -> list[Ended]:
        """Behind an error the clips are run again one by one, unless memory ran out."""
        out_of_memory = is_out_of_memory(error)
        if len(requests) > 1 and not out_of_memory:
            return [ended for request in requests for ended in self._alone(request)]
        log.error("offline batch of %d failed", len(requests), exc_info=error)
        stage: ErrorStage = "offline_oom" if out_of_memory else "offline_forward"
        return [(request, failed(request, stage, error)) for request in requests]

    def _alone(self, request: Request) -> list[Ended]:
        try:
            return [(request, self._finish(self._begin([request]))[0])]
        except Exception as error:
            return self._again([request], error)

    def _begin(self, batch: Sequence[Request]) -> _Pass:
        """Queues the forward pass of a batch."""
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
            return _Pass(batch, scores, frames, padding, time.perf_counter() - started)
        except Exception:
            self._close(opened)
            raise

    def _finish(self, begun: _Pass) -> list[RequestOutput]:
        """Decodes a pass, and ends its requests."""
        try:
            started = time.perf_counter()
            if begun.scores is not None:
                with self._metrics.stage("offline.decode"):
                    self._outputs.advance(begun.requests, begun.scores, begun.frames)
            seconds = begun.seconds + time.perf_counter() - started
            self._metrics.observe("engine_step_seconds:offline", seconds)
            self._metrics.observe("engine_batch_size:offline", len(begun.requests))
            self._metrics.observe("engine_batch_padding_ratio", begun.padding)
            self._metrics.decoded("offline", sum(begun.frames))
            with self._metrics.stage("offline.finalize"):
                return [self._outputs.clip_output(request) for request in begun.requests]
        finally:
            self._close(begun.requests)

    def _close(self, requests: Sequence[Request]) -> None:
        for request in requests:
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
