"""Streams of noise through the engine, without a server."""

import heapq
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.timing import Times, Turn
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.engine.runtimes.paged import PagedRuntime

CHUNK_FRAMES = 16


def streaming_engine(
    checkpoint: Path,
    dtype: str,
    threads: int,
    streams: int,
    left_chunks: int,
    history_s: float = 0.0,
    quantization: str | None = None,
) -> ASREngine:
    """An engine for so many live streams, with pages for `history_s` seconds of each where history is unlimited."""
    # A page of 16 frames is 640 ms. Named, because a derived pool is bounded by memory that is never touched.
    pages = int(history_s / 0.64) + 16
    config = EngineConfig(
        ckpt_dir=str(make_checkpoint(checkpoint)),
        dtype=dtype,
        num_threads=threads,
        max_batch_size=streams,
        service_mode="streaming",
        chunk_size=CHUNK_FRAMES,
        num_left_chunks=left_chunks,
        max_blocks_per_seq=pages,
        max_num_blocks=pages * streams,
        quantization=quantization,
    )
    return ASREngine(config)


def noise(seconds: float, sample_rate: int = 16_000) -> np.ndarray:
    """[samples] float32, neither silent nor loud."""
    generator = np.random.default_rng(0)
    return (0.05 * generator.standard_normal(round(seconds * sample_rate))).astype(np.float32)


class LockstepStreams:
    """Streams that all get a chunk before every step."""

    def __init__(self, engine: ASREngine, count: int):
        self._engine = engine
        self._chunk = noise(engine.chunk_seconds)
        self._count = count
        self._ids: list[str] = []
        self.restart()

    def restart(self) -> None:
        """Begins anew with no history: what is fed next gives a window at once."""
        self.close()
        self._ids = [self._engine.add_streaming_request() for _ in range(self._count)]
        # A window is longer than a chunk by the front end's context.
        self._feed(self._chunk)
        self._engine.step()

    def join(self) -> None:
        """One stream more, that has no window yet."""
        self._ids.append(self._engine.add_streaming_request())

    def step(self) -> float:
        """Feeds a chunk to each and gives the seconds of the step."""
        self._feed(self._chunk)
        started = time.perf_counter()
        self._engine.step()
        return time.perf_counter() - started

    def advance(self, seconds: float) -> None:
        """Feeds so much audio as fast as the engine takes it."""
        for _ in range(round(seconds / self._engine.chunk_seconds)):
            self.step()

    @torch.inference_mode()
    def leap(self, seconds: float) -> None:
        """Makes the caches hold so many seconds more without recognising them: pages of noise, which cost the same.

        This is no part of the engine's interface, so it reaches into it.
        """
        scheduler, runtime = self._engine._scheduler, self._engine._runner.runtime
        assert isinstance(runtime, PagedRuntime)
        attention, spec = runtime.attention, runtime._model.cache_spec
        ladder, chunks = (attention.policy.max_blocks,), round(seconds / self._engine.chunk_seconds)
        for request in scheduler.running() if chunks else ():
            if request.request_id in self._ids and request.slot is not None:
                frames = chunks * request.chunk_size
                attention.reserve(request.slot, request.offset, frames, request.chunk_size, request.num_left_chunks)
                plan = attention.plan([request.slot], [request.offset], [frames], frames, -1, frames, 1, ladder)
                keys = torch.randn(1, frames, spec.key_heads, spec.head_dim)
                bias = torch.zeros(1, frames, spec.bias_heads) if spec.bias_heads else None
                for layer in range(spec.layers):
                    attention.write(layer, plan, keys, keys, bias)
                request.offset += frames

    def close(self) -> None:
        for request_id in self._ids:
            self._engine.abort_request(request_id)
        self._ids = []

    def _feed(self, samples: np.ndarray) -> None:
        for request_id in self._ids:
            self._engine.feed_chunk(request_id, samples)


class LockstepHost:
    """An engine with groups of lockstep streams, to live in a process of its own."""

    def __init__(self, checkpoint: Path, dtype: str, threads: int, streams: Sequence[int], left_chunks: int):
        self._engine = streaming_engine(checkpoint, dtype, threads, sum(streams), left_chunks)
        self._groups = {count: LockstepStreams(self._engine, count) for count in streams}
        for group in self._groups.values():
            # The bounded history is full, so that all steps are alike.
            group.advance((max(0, left_chunks) + 1) * self._engine.chunk_seconds)

    def turn(self, streams: int, seconds: float) -> Turn:
        """Steps of one group for so long."""
        steps: list[float] = []
        while sum(steps) < seconds:
            steps.append(self._groups[streams].step())
        return Turn(len(steps) * streams * self._engine.chunk_seconds, tuple(steps))


@dataclass(frozen=True)
class PacedRun:
    """What became of streams that spoke in real time. Latencies run from the moment a chunk is due to its decoding."""

    latency: Times
    widths: tuple[int, ...]
    busy_share: float
    """Share of the time that the engine was stepping."""
    audio_s: float
    elapsed_s: float


def paced(engine: ASREngine, count: int, seconds: float, seed: int = 0) -> PacedRun:
    """Streams in real time, each with a random phase. An engine that cannot keep up is late, and late for good."""
    chunk = noise(engine.chunk_seconds)
    chunks = max(2, round(seconds / engine.chunk_seconds))
    ids = [engine.add_streaming_request() for _ in range(count)]
    phases = np.random.default_rng(seed).uniform(0, engine.chunk_seconds, count)
    begin = time.perf_counter()
    due = [(begin + phase, 0, request_id) for phase, request_id in zip(phases, ids, strict=True)]
    heapq.heapify(due)
    open_chunks: dict[str, deque[tuple[int, float]]] = {request_id: deque() for request_id in ids}
    latencies: list[float] = []
    busy = 0.0
    engine.metrics_snapshot()
    while due or any(open_chunks.values()):
        now = time.perf_counter()
        while due and due[0][0] <= now:
            moment, index, request_id = heapq.heappop(due)
            engine.feed_chunk(request_id, chunk)
            open_chunks[request_id].append(((index + 1) * len(chunk), moment))
            if index + 1 < chunks:
                heapq.heappush(due, (moment + engine.chunk_seconds, index + 1, request_id))
        if not engine.has_work:
            time.sleep(max(0.0, due[0][0] - time.perf_counter()) if due else 0.0)
            continue
        started = time.perf_counter()
        outputs = engine.step()
        ended = time.perf_counter()
        busy += ended - started
        for output in outputs:
            waiting = open_chunks[output.request_id]
            while waiting and output.samples_done >= waiting[0][0]:
                latencies.append(ended - waiting.popleft()[1])
    elapsed = time.perf_counter() - begin
    widths = engine.metrics_snapshot().samples.get("engine_batch_size:streaming", [])
    for request_id in ids:
        engine.abort_request(request_id)
    return PacedRun(
        latency=Times.of_seconds(latencies),
        widths=tuple(map(int, widths)),
        busy_share=busy / elapsed,
        audio_s=count * chunks * engine.chunk_seconds,
        elapsed_s=elapsed,
    )
