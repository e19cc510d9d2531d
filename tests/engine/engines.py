"""Small engines on the recorded checkpoints, and what must hold of every engine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from oasr_backend.config import EngineConfig
from oasr_backend.decode.base import DecodeSession, DecodeSetup
from oasr_backend.decode.greedy import GreedySession, GreedyStrategy
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine.request import Request, RequestState
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.golden.cases import DATA, wave

TINY = DATA / "u2pp_conformer_ln_causal"
BATCH_NORM = DATA / "u2_conformer_bn_causal"
SUBWORDS = DATA / "u2pp_conformer_bpe"
STREAMS = 4


def make_engine(path: Path = TINY, **options: object) -> ASREngine:
    settings: dict[str, object] = {
        "device": "cpu",
        "dtype": "float32",
        "num_threads": 1,
        "max_batch_size": STREAMS,
        "max_blocks_per_seq": 32,
        "finalize_silence_pad": False,
        # Freezing collects, which many small engines would pay for again and again.
        "gc_freeze": False,
        # Order by age would depend on how busy the machine is.
        "max_wait_time": 3600.0,
    }
    return ASREngine(EngineConfig(ckpt_dir=str(path), **{**settings, **options}))  # type: ignore[arg-type]


@cache
def demo_engine() -> ASREngine:
    """The bundled checkpoint as it is served, in float32; shared, so it must be left idle."""
    return make_engine(demo_checkpoint_dir(), finalize_silence_pad=True)


def speech(samples: int, utterance: int = 2) -> np.ndarray:
    """The first samples of a synthesised utterance, repeated when there are too few."""
    whole = wave(utterance)
    return np.tile(whole, -(-samples // len(whole)))[:samples] if samples else whole[:0]


def cut(samples: np.ndarray, sizes: Iterable[int]) -> list[np.ndarray]:
    """Pieces of the given sizes, the last one what is left."""
    pieces, start = [], 0
    for size in sizes:
        if start >= len(samples):
            break
        pieces.append(samples[start : start + size])
        start += size
    if start < len(samples):
        pieces.append(samples[start:])
    return pieces


def every(samples: np.ndarray, size: int) -> list[np.ndarray]:
    return cut(samples, [size] * (len(samples) // size + 1))


def stream(engine: ASREngine, pieces: Sequence[np.ndarray], **options: object) -> RequestOutput:
    """Feeds a stream piece by piece, a step after each, and returns its final output."""
    request_id = engine.add_streaming_request(**options)  # type: ignore[arg-type]
    outputs = []
    for piece in pieces:
        engine.feed_chunk(request_id, piece)
        outputs += engine.step()
    engine.feed_chunk(request_id, [], is_last=True)
    outputs += drain(engine)
    (final,) = (output for output in outputs if output.request_id == request_id and output.finished)
    return final


def drain(engine: ASREngine, limit: int = 2000) -> list[RequestOutput]:
    """Steps until there is no work, partials included; never for ever."""
    outputs: list[RequestOutput] = []
    for _ in range(limit):
        if not engine.has_work:
            return outputs
        outputs += engine.step()
    raise AssertionError(f"the engine still has work after {limit} steps")


def finals(outputs: Iterable[RequestOutput]) -> dict[str, RequestOutput]:
    """By request; each may end once."""
    found: dict[str, RequestOutput] = {}
    for output in outputs:
        if output.finished:
            assert output.request_id not in found, "a request ended twice"
            found[output.request_id] = output
    return found


def assert_same(actual: RequestOutput, expected: RequestOutput) -> None:
    """The same words at the same times; scores within rounding."""
    assert actual.text == expected.text
    assert actual.tokens == expected.tokens
    assert actual.finish_reason == expected.finish_reason
    assert actual.audio_seconds == expected.audio_seconds
    np.testing.assert_allclose(actual.scores, expected.scores, atol=2e-3, rtol=1e-4)
    np.testing.assert_allclose(actual.timestamps, expected.timestamps)
    if expected.confidence is not None:
        assert actual.confidence is not None
        np.testing.assert_allclose(actual.confidence, expected.confidence, atol=1e-3)


def assert_consistent(engine: ASREngine) -> None:
    """Every request is in one place, every slot and page has one owner, and no stream is ahead of its audio."""
    scheduler = engine._scheduler
    waiting: list[Request] = [*scheduler._streams, *scheduler._offline]
    running = scheduler.running()
    ids = [request.request_id for request in (*waiting, *running)]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(scheduler._index) and len(scheduler.everything()) == len(ids)
    assert all(request.state is RequestState.WAITING and request.slot is None for request in waiting)
    assert all(request.state is RequestState.RUNNING for request in running)
    assert engine.num_waiting == len(waiting) and engine.num_running == len(running)
    for request in (*waiting, *running):
        assert 0 <= request.samples_done <= request.samples_consumed <= request.samples_received
    if engine.config.streaming:
        runner = engine._runner
        slots = [request.slot for request in running if request.slot is not None]
        assert len(slots) == len(set(slots))
        assert runner.runtime.slots.free_slots == engine.config.max_batch_size - len(slots)
        held = {slot: runner.runtime.attention.held_blocks(slot) for slot in range(engine.config.max_batch_size)}
        assert runner.runtime.attention.pool.used_blocks == sum(held.values())
        assert all(not count or slot in slots for slot, count in held.items())


def assert_idle(engine: ASREngine) -> None:
    """Nothing is left of any request."""
    assert_consistent(engine)
    assert (engine.num_running, engine.num_waiting, engine.has_work) == (0, 0, False)
    gauges = engine.metrics_snapshot().gauges
    if engine.config.streaming:
        assert engine.free_streams == engine.config.max_batch_size
        assert gauges["engine_kv_blocks_used"] == 0
        assert gauges["engine_decode_slots_in_use"] == 0
        assert gauges["engine_decode_slots_capacity"] == engine.config.max_batch_size
    assert gauges["engine_running"] == gauges["engine_waiting"] == 0


@dataclass
class RecordingSession(GreedySession):
    chunks: list[np.ndarray] = field(default_factory=list)
    closed: int = 0

    @property
    def matrix(self) -> np.ndarray:
        """[frames, vocabulary] log-probabilities."""
        return np.concatenate(self.chunks)


class RecordingStrategy(GreedyStrategy):
    """Greedy decoding that keeps every log-probability, in the order in which sessions were opened."""

    def __init__(self, setup: DecodeSetup):
        super().__init__(setup)
        self.needs = Needs(log_probs=True)
        self.sessions: list[RecordingSession] = []

    def open(self, hotwords: HotwordGraph | None = None) -> RecordingSession:
        self.sessions.append(RecordingSession())
        return self.sessions[-1]

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        assert scores.full is not None
        for session, rows, count in zip(sessions, scores.full.numpy(), frames, strict=True):
            assert isinstance(session, RecordingSession)
            session.chunks.append(rows[:count].copy())
        best = scores.full.max(-1, keepdim=True)
        super().advance(sessions, FrameScores(tokens=best.indices, log_probs=best.values), frames)

    def close(self, session: DecodeSession) -> None:
        assert isinstance(session, RecordingSession)
        session.closed += 1


def failing_once(call: Callable[..., object], error: Exception) -> Callable[..., object]:
    """`call`, but the first time it raises."""
    pending = [error]

    def once(*args: object, **kwargs: object) -> object:
        if pending:
            raise pending.pop()
        return call(*args, **kwargs)

    return once
