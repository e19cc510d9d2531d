"""The engine's façade: waveforms in, transcripts out."""

import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import oasr_backend.checkpoints.bundle
import oasr_backend.checkpoints.wenet
import oasr_backend.decode.greedy
import oasr_backend.engine.runtimes.dense
import oasr_backend.engine.runtimes.paged
import oasr_backend.features.fbank
import oasr_backend.features.mfcc
import oasr_backend.models.conformer.model
import oasr_backend.models.transformer.model
import oasr_backend.tokenizers.symbol_table  # noqa: F401
from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.config import EngineConfig, ResolvedConfig, resolve
from oasr_backend.decode.base import build_strategy
from oasr_backend.engine.batching import BatchLimits, partition_policy
from oasr_backend.engine.executor.offline import OfflineExecutor
from oasr_backend.engine.executor.streaming import StreamingExecutor
from oasr_backend.engine.input_processor import InputProcessor, as_waveform
from oasr_backend.engine.metrics import EngineMetrics, MetricsSnapshot
from oasr_backend.engine.model_runner import ModelRunner
from oasr_backend.engine.options import DecodingOptions
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.request import Request, RequestOutput
from oasr_backend.engine.scheduler import Scheduler
from oasr_backend.errors import ConfigError, EngineFullError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.base import build_model
from oasr_backend.tokenizers.base import build_tokenizer

log = logging.getLogger(__name__)


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
        checkpoint = load_checkpoint(Path(self.config.ckpt_dir))
        if config.service_mode == "streaming" and not checkpoint.model.streaming:
            raise ConfigError(
                "this checkpoint was trained without chunks (use_dynamic_chunk is false), so it cannot stream; "
                "serve it with service_mode='offline'"
            )
        if self.config.streaming and not checkpoint.model.streaming:
            self.config = replace(self.config, streaming=False)
        tokenizer = build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
        strategy = build_strategy(self.config.decode_method, checkpoint.model.blank_id)
        self._lock = threading.RLock()
        self._metrics = EngineMetrics()
        self._vocab_size = checkpoint.model.vocab_size
        features = _features(self.config, checkpoint)
        self._sample_rate = features.sample_rate
        with torch.inference_mode():
            model = build_model(checkpoint, self.config.device, self.config.dtype)
            geometry = model.geometry
            self._runner = ModelRunner(model, self.config, strategy.needs)
            self._inputs = InputProcessor(
                features,
                geometry,
                self.config.max_batch_size if self.config.streaming else 0,
                self.config.chunk_size,
                self.config.finalize_silence_pad,
                self.config.device,
            )
        self._seconds_per_frame = features.frame_shift_ms / 1000 * geometry.rate
        self._outputs = outputs = OutputProcessor(strategy, tokenizer, self._seconds_per_frame, self._sample_rate)
        limits = BatchLimits(self.config.max_batch_size, self.config.max_batch_frames)
        self._scheduler = Scheduler(
            self.config.max_batch_size,
            limits,
            self.config.schedule_policy,
            self._cost,
            self.config.max_wait_time,
        )
        partition = partition_policy(self.config.partition_policy)
        self._offline = OfflineExecutor(
            self._inputs,
            self._runner,
            outputs,
            self._metrics,
            lambda batch: partition([self._cost(request) for request in batch], limits),
        )
        self._streaming = StreamingExecutor(self._inputs, self._runner, outputs, self._scheduler, self._metrics)
        # Outputs of requests other than those that a blocking call waits for.
        self._unclaimed: list[RequestOutput] = []

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
    def num_running(self) -> int:
        with self._lock:
            return self._scheduler.num_running

    @property
    def num_waiting(self) -> int:
        with self._lock:
            return self._scheduler.num_waiting

    @property
    def free_streams(self) -> int:
        """Live streams that would start at once."""
        with self._lock:
            return self._scheduler.free_places if self.config.streaming else 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything; streams that wait for audio or for a place are no work."""
        with self._lock:
            scheduler = self._scheduler
            return scheduler.can_admit or any(map(self._streaming.has_work, scheduler.running()))

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
        clip longer than `max_audio_seconds`, an id in use, or an option that cannot be honoured.
        """
        self._check_rate(sample_rate)
        wave = as_waveform(audio)
        request = self._new_request(request_id, streaming, priority, decoding)
        if streaming:
            self._inputs.feed(request, wave, is_last=True)
        else:
            seconds = len(wave) / self._sample_rate
            if seconds > self.config.max_audio_seconds:
                raise ValueError(
                    f"the clip lasts {seconds:.1f} s and max_audio_seconds is {self.config.max_audio_seconds:g}; "
                    "stream it, or cut it"
                )
            request.audio = wave
            request.samples_received = len(wave)
        return self._admit(request)

    def add_streaming_request(
        self,
        request_id: str | None = None,
        sample_rate: int | None = None,
        priority: int = 0,
        chunk_size: int | None = None,
        decoding: DecodingOptions | Mapping[str, Any] | None = None,
    ) -> str:
        """Opens a stream to feed with `feed_chunk`. `chunk_size` may be smaller than the engine's, never larger."""
        self._check_rate(sample_rate)
        request = self._new_request(request_id, True, priority, decoding)
        if chunk_size is not None:
            if not 1 <= chunk_size <= self.config.chunk_size:
                raise ValueError(
                    f"chunk_size is {chunk_size}; this engine serves 1 to {self.config.chunk_size}, its own chunk_size"
                )
            request.chunk_size = chunk_size
        return self._admit(request)

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
            self._metrics.count("audio_seconds:streaming", len(wave) / self._sample_rate)

    def abort_request(self, request_id: str) -> bool:
        """Ends a request with no output; False when there is none of that id."""
        with self._lock:
            request = self._scheduler.find(request_id)
            if request is None:
                return False
            self._streaming.release(request)
            return True

    # stepping

    @torch.inference_mode()
    def step(self) -> list[RequestOutput]:
        """One tick: an offline batch and one window of every stream that has one. Partials and finals."""
        with self._lock:
            outputs, self._unclaimed = self._unclaimed, []
            plan = self._scheduler.schedule()
            outputs += self._streaming.admit(plan.admitted)
            outputs += self._offline.run(plan.offline_batch)
            outputs += self._streaming.run(plan.running)
            self._set_gauges()
            return outputs

    def run(self) -> list[RequestOutput]:
        """Steps until no work is left; the final outputs. Streams that wait for audio or a place stay as they are."""
        with self._lock:
            finals = [output for output in self._unclaimed if output.finished]
            self._unclaimed = []
            while self.has_work:
                finals += [output for output in self.step() if output.finished]
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
        """Names of the sampled series that this engine's snapshots may hold."""
        served = (("streaming", self.config.streaming), ("offline", self.config.offline))
        kinds = [kind for kind, is_served in served if is_served]
        series = [f"{name}:{kind}" for kind in kinds for name in ("step_seconds", "batch_size")]
        return (*series, "padding_ratio") if self.config.offline else tuple(series)

    def metrics_snapshot(self) -> MetricsSnapshot:
        with self._lock:
            self._set_gauges()
            return self._metrics.snapshot()

    def shutdown(self) -> None:
        """Aborts everything; may be called twice."""
        with self._lock:
            for request in self._scheduler.everything():
                self._streaming.release(request)

    def _set_gauges(self) -> None:
        gauges = self._metrics.gauges
        gauges["running"] = self._scheduler.num_running
        gauges["waiting"] = self._scheduler.num_waiting
        if self.config.streaming:
            usage = self._runner.runtime.usage
            gauges["kv_blocks_used"] = usage.blocks_used
            gauges["kv_blocks_capacity"] = usage.blocks_capacity
            gauges["slots_free"] = usage.slots_free

    def _cost(self, request: Request) -> int:
        """Feature frames of a request."""
        return self._inputs.spec.num_frames(request.samples_received)

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
        options = DecodingOptions.coerce(decoding)
        self._outputs.check(options)
        return Request(
            request_id=request_id or uuid.uuid4().hex,
            streaming=streaming,
            priority=priority,
            chunk_size=self.config.chunk_size,
            num_left_chunks=self.config.num_left_chunks,
            options=options,
        )

    def _admit(self, request: Request) -> str:
        with self._lock:
            self._scheduler.add(request)
            self._metrics.count(f"requests:{'streaming' if request.streaming else 'offline'}")
            self._metrics.count(
                f"audio_seconds:{'streaming' if request.streaming else 'offline'}",
                request.samples_received / self._sample_rate,
            )
        return request.request_id

    def _check_rate(self, sample_rate: int | None) -> None:
        if sample_rate is not None and sample_rate != self._sample_rate:
            raise ValueError(
                f"audio is at {sample_rate} Hz and the model takes {self._sample_rate} Hz; resample it first"
            )


def _features(config: ResolvedConfig, checkpoint: Checkpoint) -> FeatureSpec:
    """The checkpoint's features, or explicit ones: they win, with a warning that names what differs."""
    own, explicit = checkpoint.features, config.feature_config
    if explicit is None:
        return own
    if explicit.dim != own.dim:
        raise ConfigError(
            f"feature_config gives {explicit.dim} numbers a frame but the model takes {own.dim}; leave it out"
        )
    differing = [field.name for field in fields(own) if getattr(own, field.name) != getattr(explicit, field.name)]
    if differing:
        log.warning("feature_config overrides what the checkpoint was trained with: %s", ", ".join(differing))
    return explicit
