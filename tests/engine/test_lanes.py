"""Batches that are computed in parts side by side."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from oasr_backend.engine import ASREngine
from oasr_backend.utils import lanes as lanes_module
from tests.engine.engines import BATCH_NORM, TINY, RecordingStrategy, assert_idle, drain, every, make_engine, speech
from tests.engine.test_log_probs import masked
from tests.golden.cases import assert_log_probs_equal

CLIPS = [speech(75000), speech(1400), speech(30000, 1), speech(200), speech(47000, 0)]


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In how many parts each batch was computed, however small it was.

    Not in how many threads: one that is done may take another's part before that one wakes.
    """
    counts: list[int] = []
    run = lanes_module.Lanes.run

    def watched(self, jobs):
        counts.append(len(jobs))
        return run(self, jobs)

    monkeypatch.setattr(lanes_module, "_MIN_FRAMES", 1)
    monkeypatch.setattr(lanes_module.Lanes, "run", watched)
    return counts


def laned(path: Path = TINY, **options: object) -> ASREngine:
    """Its lanes have a core each; what this thread computes itself needs no more, and would wait for others' cores."""
    engine = make_engine(path, **options)
    torch.set_num_threads(1)
    return engine


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("path", [TINY, BATCH_NORM], ids=lambda path: path.name)
def test_clips(recorder: RecordingStrategy, parts: list[int], path, lanes: int, packed: bool) -> None:
    engine = laned(path, decode_method="recording", num_threads=lanes, enable_sequence_packing=packed)
    engine.transcribe_outputs(CLIPS, streaming=False)
    assert max(parts) == lanes
    # Clips too short for a frame have a pass of their own.
    sessions = sorted(recorder.sessions, key=lambda session: sum(map(len, session.chunks)))
    assert not sum(map(len, sessions[0].chunks))
    for clip, session in zip(sorted(CLIPS, key=len)[1:], sessions[1:], strict=True):
        assert_log_probs_equal(session.matrix, masked(engine, clip))


@pytest.mark.parametrize("pad_batch", [False, True])
def test_streams(recorder: RecordingStrategy, parts: list[int], pad_batch: bool) -> None:
    engine = laned(decode_method="recording", num_threads=2, num_left_chunks=2, streaming_graph_pad_batch=pad_batch)
    clips = [speech(47000, 1), speech(30000, 2), speech(40000, 0)]
    ids = [engine.add_streaming_request() for _ in clips]
    pieces = [every(clip, 5000) for clip in clips]
    while any(pieces):
        for request_id, left in zip(ids, pieces, strict=True):
            if left:
                engine.feed_chunk(request_id, left.pop(0), is_last=not left)
        engine.step()
    drain(engine)
    assert max(parts) == 2
    for clip, session in zip(clips, recorder.sessions, strict=True):
        assert_log_probs_equal(session.matrix, masked(engine, clip, 16, 2))
    assert_idle(engine)


def test_a_failing_lane_fails_its_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = laned(num_threads=2)
    encode = engine._runner._model.encode_chunk
    calls = []

    def failing(features, positions, memory):
        calls.append(threading.current_thread().name)
        if len(calls) == 2:
            raise RuntimeError("broken")
        return encode(features, positions, memory)

    monkeypatch.setattr(engine._runner._model, "encode_chunk", failing)
    ids = [engine.add_streaming_request() for _ in range(4)]
    for request_id in ids:
        engine.feed_chunk(request_id, speech(30000), is_last=True)
    outputs = drain(engine)
    assert [output.finish_reason for output in outputs if output.finished] == ["error"] * 4
    (after,) = engine.transcribe_outputs([np.asarray(speech(30000))], streaming=True)
    assert after.finish_reason == "stop" and after.text
    assert_idle(engine)
