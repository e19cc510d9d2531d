"""The engine's façade: waveforms in, transcripts out."""

import logging
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

import oasr_backend.checkpoints.bundle
import oasr_backend.checkpoints.wenet
import oasr_backend.decode.greedy
import oasr_backend.decode.prefix_beam
import oasr_backend.decode.rescoring
import oasr_backend.engine.runtimes.dense
import oasr_backend.engine.runtimes.paged
import oasr_backend.features.fbank
import oasr_backend.features.mfcc
import oasr_backend.models.conformer.model
import oasr_backend.models.transformer.model
import oasr_backend.tokenizers.huggingface
import oasr_backend.tokenizers.sentencepiece_model
import oasr_backend.tokenizers.symbol_table  # noqa: F401
from oasr_backend.config import EngineConfig, ResolvedConfig, resolve
from oasr_backend.decode.endpoint import EndpointRule
from oasr_backend.engine.batching import BatchLimits
from oasr_backend.engine.executor.offline import OfflineExecutor, failed
from oasr_backend.engine.executor.streaming import StreamingExecutor
from oasr_backend.engine.input_processor import InputProcessor, as_waveform
from oasr_backend.engine.loading import make_decoders, open_checkpoint, require_chunks
from oasr_backend.engine.longform import CutRule
from oasr_backend.engine.metrics import EngineMetrics, MetricsSnapshot, TimeSpent, series
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.options import DecodingOptions, EndpointDefaults
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.partition import partition_policy
from oasr_backend.engine.preparation import Preparation
from oasr_backend.engine.recordings import LongRecordings
from oasr_backend.engine.request import Request, RequestOutput
from oasr_backend.engine.scheduler import Scheduler
from oasr_backend.errors import ConfigError, EngineFullError, OptionError
from oasr_backend.models.base import AsrModel, build_model
from oasr_backend.tokenizers.base import build_tokenizer
from oasr_backend.utils.device import raise_if_lost
from oasr_backend.utils.heap import HeapFreeze
from oasr_backend.utils.kernels import keep_kernels
from oasr_backend.utils.malloc import keep_freed_memory
from oasr_backend.utils.pinned import AudioBuffers, PageLockedCache
from oasr_backend.utils.ranges import Ranges
from oasr_backend.utils.shown import shown

log = logging.getLogger(__name__)

# With nothing else to do a step waits so long for a waveform that is being prepared.
_PREPARATION_WAIT_S = 0.005

# Kernels kept on a CPU, a dozen for a number of rows: the widths of steps come again, the lengths of clips hardly do.
_STREAMING_KERNELS, _OFFLINE_KERNELS = 256, 128


@dataclass(frozen=True)
class RequestSpec:
    """The arguments of `add_request`, for many at once."""

    audio: object
    request_id: str | None = None
    sample_rate: int | None = None
    streaming: bool = True
    priority: int = 0
    decoding: DecodingOptions | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Admission:
    """What became of a spec: the request's id, or why there is none."""

    request_id: str | None
    error: Exception | None = None


class ASREngine:
    """Streaming and offline speech recognition over one model.

    Every public call is safe from any thread; `step` holds the lock while it runs. Audio is mono at `sample_rate`:
    float in [-1, 1], or int16. The engine reads no files and resamples nothing.
    """

    def __init__(self, config: EngineConfig):
        """Loads the checkpoint and allocates all state. Raises CheckpointError or ConfigError."""
        self.config: ResolvedConfig = resolve(config)
        if self.config.device.type == "cpu":
            torch.set_num_threads(self.config.num_threads)
            keep_freed_memory()
            keep_kernels(_STREAMING_KERNELS if self.config.streaming else _OFFLINE_KERNELS)
        checkpoint = open_checkpoint(self.config)
        if config.service_mode == "streaming":
            require_chunks(checkpoint)
        if self.config.streaming and not checkpoint.model.streaming:
            self.config = replace(self.config, streaming=False)
        config_ = self.config
        tokenizer = build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
        self._lock = threading.RLock()
        self._vocab_size = checkpoint.model.vocab_size
        features = checkpoint.features
        ranges = Ranges(config_.nvtx, on_cuda=config_.device.type == "cuda")
        self._sample_rate = features.sample_rate
        with torch.inference_mode():
            model = build_model(checkpoint, config_.device, config_.dtype)
            geometry = model.geometry
            if config_.partition_policy == "packing" and type(model).encode_packed is AsrModel.encode_packed:
                if config.enable_sequence_packing or config.partition_policy is not None:
                    raise ConfigError(
                        f"enable_sequence_packing is set but {checkpoint.model.architecture} cannot run packed rows; "
                        "leave it out"
                    )
                self.config = config_ = replace(config_, partition_policy="frames")
            self._runner = ModelRunner(model, config_)
            self._runner.prewarm()
            self._inputs = InputProcessor(
                features,
                geometry,
                config_.max_batch_size if config_.streaming else 0,
                config_.chunk_size,
                config_.finalize_silence_pad,
                config_.device,
                ranges,
            )
        self._seconds_per_frame = features.frame_shift_ms / 1000 * geometry.rate
        self._metrics = EngineMetrics(self._seconds_per_frame, ranges)
        self._outputs = outputs = OutputProcessor(
            make_decoders(config_, checkpoint, model.rescorer, self._seconds_per_frame),
            tokenizer,
            self._seconds_per_frame,
            self._sample_rate,
            _endpoints(config_),
        )
        limits = _limits(config_, geometry.rate)
        # No part may hold the engine itself: in a cycle a frozen engine would outlive its last user.
        inputs, partition = self._inputs, partition_policy(config_.partition_policy)

        def length(request: Request) -> int:
            """Feature frames of a request; a short one is no reason to wait."""
            return max(1, inputs.spec.num_frames(request.samples_received))

        self._scheduler = Scheduler(
            config_.max_batch_size,
            limits,
            config_.schedule_policy,
            length,
            config_.max_wait_time,
            config_.streaming_cohort_admit,
        )
        self._offline = OfflineExecutor(
            inputs,
            self._runner,
            outputs,
            self._metrics,
            lambda batch: partition([length(request) for request in batch], limits),
            packed=config_.partition_policy == "packing",
            overlap=config_.offline_decode_overlap,
        )
        self._streaming = StreamingExecutor(
            inputs,
            self._runner,
            outputs,
            self._scheduler,
            self._metrics,
            self.chunk_seconds,
            config_.partial_decode_interval,
            config_.streaming_feature_lookahead,
        )
        self._recordings: LongRecordings | None = None
        if config_.long_form and config_.offline:
            rule = _cut_rule(config_, self._sample_rate, geometry.rate * features.shift_samples)
            self._recordings = LongRecordings(rule, outputs, self._scheduler.add, self._scheduler.remove)
        self._preparation: Preparation | None = None
        if config_.overlap_admit and config_.offline:
            self._preparation = Preparation(partial(_checked_clip, config_, self._sample_rate))
            weakref.finalize(self, self._preparation.stop).atexit = False
        self._audio_buffers = AudioBuffers(
            config_.device,
            self._sample_rate,
            config_.max_pinned_audio_seconds,
            config_.max_pinned_audio_total_seconds,
        )
        self._page_locked: PageLockedCache | None = None
        if config_.device.type == "cuda":
            # float32
            audio_bytes = int(config_.max_pinned_audio_total_seconds * self._sample_rate) * 4
            self._page_locked = PageLockedCache(audio_bytes)
        self._is_open = True
        # Outputs of requests other than those that a blocking call waits for.
        self._unclaimed: list[RequestOutput] = []
        # Last, so that all that was built above is frozen with it.
        self._heap = HeapFreeze() if config_.gc_freeze else None

    # properties

    @property
    def sample_rate(self) -> int:
        return self._sample_rate

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def seconds_per_frame(self) -> float:
        """Audio per encoder frame."""
        return self._seconds_per_frame

    @property
    def chunk_seconds(self) -> float:
        """Audio by which one step moves a stream on: what a step may take when streams are to keep up."""
        return self.config.chunk_size * self._seconds_per_frame

    @property
    def num_running(self) -> int:
        """Streams that run, and clips whose scores wait to be decoded."""
        with self._lock:
            return self._scheduler.num_running + len(self._offline)

    @property
    def num_waiting(self) -> int:
        """Requests that wait, those whose waveform is still being prepared among them."""
        with self._lock:
            return self._scheduler.num_waiting + (len(self._preparation) if self._preparation else 0)

    @property
    def max_streams(self) -> int:
        """Live streams that the engine can hold at once: its slots, each of which has its share of the page pool."""
        return self.config.max_batch_size if self.config.streaming else 0

    @property
    def free_streams(self) -> int:
        """Live streams that would start at once."""
        with self._lock:
            return self._scheduler.free_places if self.config.streaming else 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything; streams that wait for audio or for a place are no work."""
        with self._lock:
            return bool(self._unclaimed) or bool(self._preparation) or self._can_step

    @property
    def _can_step(self) -> bool:
        """Whether something waits that can go, or a stream can move on."""
        scheduler = self._scheduler
        is_due = scheduler.can_admit or self._offline.is_holding
        return is_due or any(map(self._streaming.has_work, scheduler.running()))

    @property
    def seconds_held(self) -> float:
        """Time until requests that wait for a preferred batch size go as they are; infinite when none do."""
        with self._lock:
            return self._scheduler.seconds_held

    # requests

    def add_request(
        self,
        audio: object,
        request_id: str | None = None,
        sample_rate: int | None = None,
        streaming: bool = True,
        priority: int = 0,
        decoding: DecodingOptions | Mapping[str, Any] | None = None,
    ) -> str:
        """Queues a whole waveform; its output comes from `step`. Lower priorities go first.

        Raises TypeError or ValueError for what is no mono waveform at the model's rate, and ValueError for an offline
        clip longer than `max_audio_seconds`, an id in use, or an option that cannot be honoured. With `overlap_admit`
        an offline clip is looked at later, until when its memory must stay as it is, and what is wrong with it comes
        back as an output.
        """
        self._check_open()
        spec = RequestSpec(audio, request_id, sample_rate, streaming, priority, decoding)
        request, samples = self._prepared(spec)
        with self._lock:
            self._admit(request, spec.audio if samples is None else samples, is_prepared=samples is not None)
        return request.request_id

    def add_requests_batch(self, specs: Sequence[RequestSpec | Mapping[str, Any]]) -> list[Admission]:
        """Queues many waveforms under one hold of the lock; what is wrong with one is said in its place.

        A mapping holds the arguments of `add_request` by name.
        """
        self._check_open()
        prepared: list[tuple[RequestSpec, Request, np.ndarray | None] | Exception] = []
        for given in specs:
            try:
                spec = given if isinstance(given, RequestSpec) else RequestSpec(**given)
                prepared.append((spec, *self._prepared(spec)))
            except Exception as error:
                # Whatever reading one caller's array raises, the others are admitted.
                prepared.append(error)
        admissions = []
        with self._lock:
            for item in prepared:
                if isinstance(item, Exception):
                    admissions.append(Admission(None, item))
                    continue
                spec, request, samples = item
                try:
                    self._admit(request, spec.audio if samples is None else samples, is_prepared=samples is not None)
                    admissions.append(Admission(request.request_id))
                except ValueError as error:
                    admissions.append(Admission(None, error))
        return admissions

    def add_streaming_request(
        self,
        request_id: str | None = None,
        sample_rate: int | None = None,
        priority: int = 0,
        chunk_size: int | None = None,
        decoding: DecodingOptions | Mapping[str, Any] | None = None,
    ) -> str:
        """Opens a stream to feed with `feed_chunk`. `chunk_size` may be smaller than the engine's, never larger."""
        self._check_open()
        self._check_rate(sample_rate)
        request = self._new_request(request_id, True, priority, decoding)
        if chunk_size is not None:
            if not 1 <= chunk_size <= self.config.chunk_size:
                most = self.config.chunk_size
                raise ValueError(
                    f"chunk_size is {shown(chunk_size)}; this engine serves 1 to {most}, its own chunk_size"
                )
            request.chunk_size = chunk_size
        with self._lock:
            self._check_id(request.request_id)
            self._scheduler.add(request)
            self._count_admission(request)
        return request.request_id

    def feed_chunk(self, request_id: str, chunk: object, is_last: bool = False) -> None:
        """Adds samples to a stream; any length, none included.

        Raises KeyError for an unknown or ended stream, RuntimeError after the last chunk, TypeError or ValueError for
        what is no waveform; a refused chunk leaves the stream as it was.
        """
        if not self.config.streaming:
            raise NotImplementedError("this engine is offline only (service_mode='offline'); use add_request")
        wave = as_waveform(chunk)
        with self._lock:
            request = self._scheduler.find(request_id)
            if request is None or not request.streaming:
                raise KeyError(f"no stream {request_id!r}: it never started or has ended; open a new one")
            if request.audio_final:
                raise RuntimeError(f"stream {request_id!r} has had its last chunk; open a new one")
            self._inputs.feed(request, wave, is_last)
            self._metrics.count("engine_audio_seconds:streaming", len(wave) / self._sample_rate)

    def abort_request(self, request_id: str) -> bool:
        """Ends a request with no output; False when there is none of that id."""
        with self._lock:
            if self._recordings is not None and request_id in self._recordings:
                self._recordings.abort(request_id)
                mode = "offline"
            elif self._preparation is not None and request_id in self._preparation:
                self._preparation.withdraw(request_id)
                mode = "offline"
            elif request_id in self._offline:
                self._offline.withdraw(request_id)
                mode = "offline"
            elif (request := self._scheduler.find(request_id)) is not None and request.parent_id is None:
                mode = _mode(request)
                self._streaming.release(request)
            else:
                return False
            self._metrics.count(f"requests_cancelled:{mode}")
            return True

    def new_audio_buffer(self, samples: int) -> torch.Tensor | None:
        """Page-locked [samples] float32 to fill and pass as audio; None where ordinary memory serves, as on CPU."""
        return self._audio_buffers.new(samples)

    # stepping

    def step(self) -> list[RequestOutput]:
        """One tick: an offline batch and one window of every stream that has one. Partials and finals.

        Raises DeviceLostError when the device serves nobody any more; every other failure is an output.
        """
        self._await_preparation()
        with self._lock, self._metrics.step():
            return self._step()

    @torch.inference_mode()
    def _step(self, flush: bool = False) -> list[RequestOutput]:
        """`flush`: no request waits for more to come."""
        outputs = self._admit_prepared()
        with self._metrics.stage("streaming.schedule"):
            plan = self._scheduler.schedule(flush)
        for request in (*plan.admitted, *plan.offline_batch):
            self._metrics.observe(f"engine_queue_wait_seconds:{_mode(request)}", self._scheduler.waited(request))
        outputs += self._streaming.admit(plan.admitted)
        with self._metrics.ranges("offline_batch"):
            ended = self._offline.run(plan.offline_batch, more_waits=self._scheduler.clips_can_go)
        finished = [output for _, output in ended]
        if self._recordings is not None:
            finished = self._recordings.absorb([request for request, _ in ended], finished)
        outputs += finished
        outputs += self._streaming.run(plan.running)
        for output in outputs:
            if output.error_stage is not None:
                self._metrics.count(f"requests_failed:{output.error_stage}")
            if output.finished:
                self._metrics.count("engine_tokens_generated", len(output.tokens[0]))
        self._set_gauges()
        if any(output.error_stage is not None for output in outputs):
            raise_if_lost(self.config.device)
        if self._page_locked is not None and not self._scheduler.everything() and not self._offline.is_holding:
            self._page_locked.trim()
        # Those of earlier steps were counted then.
        unclaimed, self._unclaimed = self._unclaimed, []
        return unclaimed + outputs

    def run(self) -> list[RequestOutput]:
        """Steps until no work is left; the final outputs. Streams that wait for audio or a place stay as they are."""
        with self._lock:
            finals = [output for output in self._unclaimed if output.finished]
            self._unclaimed = []
            while self.has_work or self._scheduler.is_holding:
                self._await_preparation()
                with self._metrics.step():
                    finals += [output for output in self._step(flush=True) if output.finished]
            return finals

    # conveniences

    def transcribe(self, audio: object, streaming: bool = True) -> str | list[str]:
        """Text of a waveform, or texts of a list of them, in order."""
        outputs = self.transcribe_outputs(audio if isinstance(audio, list | tuple) else [audio], streaming)
        texts = [output.text for output in outputs]
        return texts if isinstance(audio, list | tuple) else texts[0]

    def transcribe_offline(self, audio: object) -> str | list[str]:
        return self.transcribe(audio, streaming=False)

    def transcribe_outputs(
        self,
        audio: Sequence[object],
        streaming: bool = True,
        decoding: DecodingOptions | Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Final outputs in the order of `audio`.

        Raises EngineFullError when live streams that wait for audio hold every place.
        """
        with self._lock:
            ids: list[str] = []
            try:
                for clip in audio:
                    ids.append(self.add_request(clip, streaming=streaming, decoding=decoding))
            except Exception:
                for request_id in ids:
                    self.abort_request(request_id)
                raise
            finals = {output.request_id: output for output in self.run()}
            outputs = [finals.pop(request_id) for request_id in ids if request_id in finals]
            self._unclaimed += finals.values()
            if len(outputs) < len(ids):
                for request_id in ids:
                    self.abort_request(request_id)
                raise EngineFullError(
                    f"{self.num_running} live streams that wait for audio hold every place; end some of them first"
                )
            return outputs

    # observation and end

    def warm_up(self) -> None:
        """Runs noise through every path, so that the first request finds kernels built and memory touched."""
        noise = (np.random.default_rng(0).standard_normal(3 * self._sample_rate) * 0.01).astype(np.float32)
        with self._lock:
            for width in (1, 2, 4, 8):
                if width <= self.config.max_batch_size:
                    if self.config.streaming:
                        self.transcribe_outputs([noise] * width, streaming=True)
                    if self.config.offline:
                        self.transcribe_outputs([noise] * width, streaming=False)
            self._metrics.clear()

    @property
    def metric_series(self) -> tuple[str, ...]:
        """Names of the histograms and counters that this engine's snapshots may hold."""
        return series(self.config.streaming, self.config.offline)

    @property
    def time_spent(self) -> TimeSpent:
        """Steps and their stages since the warm-up."""
        with self._lock:
            return self._metrics.spent

    def metrics_snapshot(self) -> MetricsSnapshot:
        with self._lock:
            self._set_gauges()
            return self._metrics.snapshot()

    def shutdown(self) -> None:
        """Aborts everything and lets go of threads and the frozen heap; may be called twice."""
        with self._lock:
            self._is_open = False
            if self._preparation is not None:
                self._preparation.clear()
            for request_id in self._recordings or ():
                self._recordings.abort(request_id)  # type: ignore[union-attr]
            self._offline.clear()
            for request in self._scheduler.everything():
                try:
                    self._streaming.release(request)
                except Exception:
                    log.exception("a stream's decoding state could not be closed")
        if self._preparation is not None:
            self._preparation.stop()
        if self._heap is not None:
            self._heap.release()

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError("the engine has been shut down; make a new one")

    def _set_gauges(self) -> None:
        gauges = self._metrics.gauges
        gauges["engine_running"] = self._scheduler.num_running
        gauges["engine_waiting"] = self.num_waiting
        gauges.update(self._runner.graphs)
        for name, count in self._runner.take_graph_counts().items():
            self._metrics.count(name, count)
        if self.config.streaming:
            gauges["engine_chunk_seconds"] = self.chunk_seconds
            usage = self._runner.runtime.usage
            gauges["engine_kv_blocks_used"] = usage.blocks_used
            gauges["engine_kv_blocks_capacity"] = usage.blocks_capacity
            gauges["engine_decode_slots_in_use"] = self.config.max_batch_size - usage.slots_free
            gauges["engine_decode_slots_capacity"] = self.config.max_batch_size

    def _prepared(self, spec: RequestSpec) -> tuple[Request, np.ndarray | None]:
        """A request and its waveform; None when that is left to the preparation thread."""
        self._check_rate(spec.sample_rate)
        request = self._new_request(spec.request_id, spec.streaming, spec.priority, spec.decoding)
        if spec.streaming:
            return request, as_waveform(spec.audio)
        if self._preparation is not None:
            return request, None
        samples = _checked_clip(self.config, self._sample_rate, spec.audio)
        self._check_length(request, samples)
        return request, samples

    def _admit(self, request: Request, audio: object, is_prepared: bool) -> None:
        self._check_id(request.request_id)
        if not is_prepared:
            assert self._preparation is not None
            self._preparation.submit(request, audio)
            self._metrics.count("requests_admitted:offline")
            return
        assert isinstance(audio, np.ndarray)
        if request.streaming:
            self._inputs.feed(request, audio, is_last=True)
            self._scheduler.add(request)
        else:
            self._queue_clip(request, audio)
        self._count_admission(request)

    def _queue_clip(self, request: Request, samples: np.ndarray) -> None:
        request.samples_received = len(samples)
        if self._recordings is not None and self._recordings.is_long(len(samples)):
            self._recordings.open(request, samples)
        else:
            request.audio = samples
            self._scheduler.add(request)

    def _await_preparation(self) -> None:
        """Gives a waveform that is being prepared a moment when there is nothing else to do."""
        preparation = self._preparation
        if not preparation:
            return
        with self._lock:
            is_idle = not self._can_step
        if is_idle:
            preparation.wait(_PREPARATION_WAIT_S)

    def _admit_prepared(self) -> list[RequestOutput]:
        """Queues what has been prepared; an output for each that cannot be served."""
        outputs = []
        for item in self._preparation.drain() if self._preparation is not None else ():
            error = item.error
            if item.samples is not None:
                try:
                    self._check_length(item.request, item.samples)
                    self._queue_clip(item.request, item.samples)
                    self._count_audio(item.request)
                    continue
                except ValueError as refused:
                    error = refused
            assert error is not None
            output = failed(item.request, "offline_prep", error)
            # What is wrong with the audio is for the caller; anything else is for the log.
            if isinstance(error, TypeError | ValueError):
                output = replace(output, error=str(error))
            else:
                log.error("a waveform could not be prepared", exc_info=error)
            outputs.append(output)
        return outputs

    def _new_request(
        self,
        request_id: str | None,
        streaming: bool,
        priority: int,
        decoding: DecodingOptions | Mapping[str, Any] | None,
    ) -> Request:
        if streaming and not self.config.streaming:
            raise ValueError(
                "this engine is offline only (service_mode='offline', or a checkpoint trained without chunks); "
                "use add_request(streaming=False)"
            )
        if not streaming and not self.config.offline:
            raise ValueError("this engine streams only (service_mode='streaming'); add_request(streaming=True)")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"priority is {priority!r}; it must be a whole number, lower ones go first")
        if request_id is not None and not isinstance(request_id, str):
            raise TypeError(f"request_id is {request_id!r}; it must be a text")
        options = DecodingOptions.coerce(decoding)
        self._outputs.check(options, streaming)
        return Request(
            request_id=request_id or uuid.uuid4().hex,
            streaming=streaming,
            priority=priority,
            chunk_size=self.config.chunk_size,
            num_left_chunks=self.config.num_left_chunks,
            options=options,
        )

    def _check_id(self, request_id: str) -> None:
        held = (self._recordings, self._preparation, self._offline)
        is_held = any(holder is not None and request_id in holder for holder in held)
        if is_held or self._scheduler.find(request_id) is not None:
            raise ValueError(f"request id {request_id!r} is in use; ids must be unique while a request lives")

    def _check_length(self, request: Request, samples: np.ndarray) -> None:
        """Raises OptionError for an option that a recording decoded in windows cannot have."""
        is_long = self._recordings is not None and self._recordings.is_long(len(samples))
        if is_long and request.options.n_best > 1:
            raise OptionError(
                f"n_best is {request.options.n_best}, but a recording of {len(samples) / self._sample_rate:.1f} s is "
                f"decoded in windows of {self.config.long_form_window_seconds:g} s, whose alternatives cannot be "
                "joined; ask for 1, or cut the recording"
            )

    def _count_admission(self, request: Request) -> None:
        self._metrics.count(f"requests_admitted:{_mode(request)}")
        self._count_audio(request)

    def _count_audio(self, request: Request) -> None:
        self._metrics.count(f"engine_audio_seconds:{_mode(request)}", request.samples_received / self._sample_rate)

    def _check_rate(self, sample_rate: int | None) -> None:
        if sample_rate is not None and sample_rate != self._sample_rate:
            raise ValueError(
                f"audio is at {sample_rate} Hz and the model takes {self._sample_rate} Hz; resample it first"
            )


def _mode(request: Request) -> str:
    return "streaming" if request.streaming else "offline"


def _checked_clip(config: ResolvedConfig, sample_rate: int, audio: object) -> np.ndarray:
    """An offline clip as a waveform. Raises TypeError or ValueError; ValueError when it is too long."""
    wave = as_waveform(audio)
    seconds = len(wave) / sample_rate
    if seconds > config.max_audio_seconds:
        remedy = "cut it" if config.long_form else "stream it, cut it, or set long_form"
        raise ValueError(
            f"the clip lasts {seconds:.1f} s and max_audio_seconds is {config.max_audio_seconds:g}; {remedy}"
        )
    return wave


def _limits(config: ResolvedConfig, subsampling: int) -> BatchLimits:
    return BatchLimits(
        max_rows=config.max_batch_size,
        max_frames=config.max_batch_frames,
        max_pad_ratio=config.max_offline_pad_ratio,
        min_length_ratio=config.length_bucket_ratio,
        window_factor=config.length_window_factor,
        preferred=config.preferred_batch_size,
        max_packed_frames=config.max_packed_frames,
        subsampling=subsampling,
    )


def _endpoints(config: ResolvedConfig) -> EndpointDefaults:
    rule = EndpointRule(
        config.endpoint_start_ms / 1000, config.endpoint_silence_ms / 1000, config.endpoint_max_ms / 1000
    )
    return EndpointDefaults(config.endpointing, rule, config.endpoint_history)


def _cut_rule(config: ResolvedConfig, sample_rate: int, unit: int) -> CutRule:
    window = int(config.long_form_window_seconds * sample_rate)
    return CutRule(sample_rate, window, min(int(config.long_form_overlap_seconds * sample_rate), window // 2), unit)
