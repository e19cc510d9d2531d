"""Live streams, one step at a time: all that have a window go into one forward."""

import logging
import time
from collections.abc import Sequence
from itertools import groupby

from oasr_backend.engine.executor.offline import failed
from oasr_backend.engine.input_processor import InputProcessor
from oasr_backend.engine.metrics import EngineMetrics
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.pace import Pace, Waiting
from oasr_backend.engine.request import ErrorStage, FinishReason, Request, RequestOutput
from oasr_backend.engine.scheduler import Scheduler

log = logging.getLogger(__name__)

# A stream with more chunks than these queued runs ahead of real time, whatever pieces its client sends.
_CHUNKS_AHEAD = 4
# Share of a chunk's audio that a step may take for the sake of streams ahead, while others are in real time.
_STEP_SHARE = 0.25


class StreamingExecutor:
    """features → forward → decode → finalise over the running streams."""

    def __init__(
        self,
        inputs: InputProcessor,
        runner: ModelRunner,
        outputs: OutputProcessor,
        scheduler: Scheduler,
        metrics: EngineMetrics,
        chunk_seconds: float,
        partial_interval: int = 1,
        lookahead: bool = False,
    ):
        """A partial output comes with every `partial_interval`-th window of a stream, none at 0. `lookahead`: while
        the device runs a forward pass, features of the next one are extracted.
        """
        self._inputs = inputs
        self._runner = runner
        self._outputs = outputs
        self._scheduler = scheduler
        self._metrics = metrics
        self._partial_interval = partial_interval
        self._lookahead = lookahead
        self._pace = Pace(_CHUNKS_AHEAD * chunk_seconds, _STEP_SHARE * chunk_seconds)
        self._steps = 0

    def admit(self, requests: Sequence[Request]) -> list[RequestOutput]:
        """Gives streams their state; an output for each that could not get it."""
        outputs: list[RequestOutput] = []
        if not requests:
            return outputs
        with self._metrics.stage("streaming.allocate"):
            for request in requests:
                try:
                    self._runner.runtime.allocate(request)
                    assert self._inputs.streams is not None and request.slot is not None
                    self._inputs.streams.reset(request.slot)
                    request.transcript = self._outputs.open(request)
                    if request.transcript.onsets is not None:
                        self._inputs.remember(request)
                except Exception as error:
                    outputs += self._fail([request], "streaming_features", error)
        return outputs

    def has_work(self, request: Request) -> bool:
        return request.has_pending_audio or request.audio_final or self._inputs.is_ready(request)

    def run(self, running: Sequence[Request]) -> list[RequestOutput]:
        """One step: at most one window a stream. An output for every stream that moved on or ended.

        While streams in real time run, those that are far ahead take turns where steps would get long with all of them.
        """
        moved: dict[str, Request] = {}
        outputs: list[RequestOutput] = []

        outputs += self._fail_all(self._ingest(running, moved), "streaming_features")

        ready = [request for request in running if request.slot is not None and self._inputs.is_ready(request)]
        started = time.perf_counter()
        going, ahead = self._choose(ready, running)
        for group in _by_shape(going):
            outputs += self._forward(group, moved)
        if ahead:
            self._pace.learn(ahead, time.perf_counter() - started)

        with self._metrics.stage("streaming.finalize"):
            for request in running:
                if request.slot is None:
                    continue
                try:
                    outputs += self._report(request, request.request_id in moved)
                except Exception as error:
                    outputs += self._fail([request], "decode_step", error)
        return outputs

    def _ingest(self, requests: Sequence[Request], moved: dict[str, Request]) -> list[tuple[Request, Exception]]:
        """Features for those that have audio and lack a window; those for which there are none, and why."""
        hungry = [request for request in requests if request.has_pending_audio and not self._inputs.is_ready(request)]
        if not hungry:
            return []
        try:
            with self._metrics.stage("streaming.features"):
                self._inputs.ingest(hungry)
        except Exception as error:
            return [(request, error) for request in hungry]
        moved.update((request.request_id, request) for request in hungry)
        return []

    def _look_ahead(self, requests: Sequence[Request], moved: dict[str, Request]) -> list[tuple[Request, Exception]]:
        """`_ingest` of what the step after this one needs, for streams whose windows are in this one."""
        for request in requests:
            if not self._inputs.is_ready(request):
                # Its text will be known when this step is over, whatever is taken in now.
                request.samples_done = request.samples_consumed
        return self._ingest(requests, moved)

    def _fail_all(self, failures: Sequence[tuple[Request, Exception]], stage: ErrorStage) -> list[RequestOutput]:
        """Ends those of the streams that have not ended yet."""
        left = [request for request, _ in failures if request.slot is not None]
        return self._fail(left, stage, failures[0][1]) if left else []

    def _choose(self, ready: Sequence[Request], running: Sequence[Request]) -> tuple[list[Request], int]:
        """The streams that take a window now, and how many of them run ahead beside others in real time."""
        self._steps += 1
        ahead = {one.request_id for one in running if self._pace.is_ahead(self._queued_seconds(one))}
        going = list(ready)
        is_mixed = 0 < len(ahead) < len(running)
        if is_mixed:
            waiting = [Waiting(self._queued_seconds(one), one.last_step) for one in ready]
            going = [ready[index] for index in self._pace.choose(waiting)]
        for request in going:
            request.last_step = self._steps
        return going, sum(one.request_id in ahead for one in going) if is_mixed else 0

    def _queued_seconds(self, request: Request) -> float:
        return (request.samples_received - request.samples_consumed) / self._inputs.spec.sample_rate

    def _report(self, request: Request, moved: bool) -> list[RequestOutput]:
        """The final output of a stream that is through, a partial one of a stream that moved."""
        if not self._inputs.is_ready(request):
            request.samples_done = request.samples_consumed
            if request.audio_final and not request.has_pending_audio:
                return [self._finish(request, "stop")]
        interval = self._partial_interval
        is_due = moved and interval > 0 and request.windows_decoded % interval == 0
        return [self._outputs.stream_output(request)] if is_due else []

    def _forward(self, group: Sequence[Request], moved: dict[str, Request]) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        stage: ErrorStage = "streaming_forward"
        rows = list(group)
        try:
            started = time.perf_counter()
            windows, frames = self._inputs.windows(rows)
            fits = [self._runner.runtime.reserve(request, count) for request, count in zip(rows, frames, strict=True)]
            if not all(fits):
                kept = [index for index, fit in enumerate(fits) if fit]
                exhausted = [request for request, fit in zip(rows, fits, strict=True) if not fit]
                rows, frames, windows = [rows[i] for i in kept], [frames[i] for i in kept], windows[kept]
                self._metrics.count("engine_kv_exhausted", len(exhausted))
                outputs += [self._end_exhausted(request) for request in exhausted]
            if not rows:
                return outputs
            with self._metrics.stage("streaming.encode"):
                scores = self._runner.forward_chunks(rows, windows, frames, self._outputs.needs(rows))
            stage = "decode_step"
            unfed = self._look_ahead(rows, moved) if self._lookahead else []
            with self._metrics.stage("streaming.decode"):
                listens = any(request.live_transcript.onsets is not None for request in rows)
                levels = self._inputs.levels(windows) if listens else ()
                failures = self._outputs.advance(rows, scores, frames, levels)
            failures += self._restart_histories([row for row in rows if row not in [one for one, _ in failures]])
            for request, error in failures:
                outputs += self._fail([request], "decode_step", error)
            outputs += self._fail_all(unfed, "streaming_features")
            for request in rows:
                if request.slot is not None:
                    request.windows_decoded += 1
                    moved[request.request_id] = request
            self._metrics.observe("engine_step_seconds:streaming", time.perf_counter() - started)
            self._metrics.observe("engine_batch_size:streaming", len(rows))
        except Exception as error:
            # The batched forward has no boundary between streams, and a second try would feed the chunk twice.
            outputs += self._fail(rows, stage, error)
        return outputs

    def _restart_histories(self, requests: Sequence[Request]) -> list[tuple[Request, Exception]]:
        """Streams in which speech sets on behind a pause go back to it, and the encoder begins anew there.

        Returns those that could not, and why.
        """
        failures = []
        for request in requests:
            transcript = request.live_transcript
            frames, transcript.restart = transcript.restart, 0
            if not frames:
                continue
            try:
                self._inputs.rewind(request, frames)
                self._runner.runtime.restart(request)
            except Exception as error:
                failures.append((request, error))
        return failures

    def _end_exhausted(self, request: Request) -> RequestOutput:
        try:
            return self._finish(request, "length")
        except Exception as error:
            return self._fail([request], "decode_step", error)[0]

    def _fail(self, requests: Sequence[Request], stage: ErrorStage, error: Exception) -> list[RequestOutput]:
        log.error("%d streams failed in %s", len(requests), stage, exc_info=error)
        for request in requests:
            try:
                self.release(request)
            except Exception:
                log.exception("a failed stream's decoding state could not be closed")
        return [failed(request, stage, error) for request in requests]

    def _finish(self, request: Request, reason: FinishReason) -> RequestOutput:
        output = self._outputs.stream_output(request, reason)
        self.release(request)
        return output

    def release(self, request: Request) -> None:
        """The one way a stream ends: slot, pages, decode state and queue entry all go back."""
        self._scheduler.remove(request)
        request.audio_chunks.clear()
        transcript, request.transcript = request.transcript, None
        try:
            if transcript is not None:
                self._outputs.close(transcript)
        finally:
            if request.slot is not None:
                self._runner.runtime.free(request)


def _by_shape(requests: Sequence[Request]) -> list[list[Request]]:
    """Streams that fit into one forward: equal chunk and equal history."""

    def shape(request: Request) -> tuple[int, int]:
        return request.chunk_size, request.num_left_chunks

    return [list(group) for _, group in groupby(sorted(requests, key=shape), key=shape)]
