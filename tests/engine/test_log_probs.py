"""From audio to log-probabilities: streams through the engine equal the chunk-masked pass."""

import numpy as np
import pytest
import torch

from oasr_backend.decode.scores import Needs
from oasr_backend.engine import ASREngine
from tests.engine.engines import (
    BATCH_NORM,
    STREAMS,
    TINY,
    RecordingStrategy,
    assert_idle,
    drain,
    every,
    make_engine,
    speech,
    stream,
)
from tests.golden.cases import assert_log_probs_equal, float32_model


@torch.inference_mode()
def masked(engine: ASREngine, samples: np.ndarray, chunk: int = -1, left: int = -1) -> np.ndarray:
    """One pass over the whole clip."""
    model = float32_model(engine.config.ckpt_dir)
    features, frames = engine._inputs.clips([samples])
    scores = model.score(model.encode_clips(features, torch.tensor(frames), chunk, left), Needs(log_probs=True))
    assert scores.full is not None
    return scores.full[0].numpy()


@pytest.mark.parametrize("path", [TINY, BATCH_NORM], ids=lambda path: path.name)
@pytest.mark.parametrize(("chunk", "left"), [(16, -1), (16, 4), (8, 2), (16, 0), (5, 3)])
def test_streaming_equals_the_masked_pass(recorder: RecordingStrategy, path, chunk: int, left: int) -> None:
    engine = make_engine(path, decode_method="recording", num_left_chunks=left, block_size_frames=7)
    samples = speech(75000)
    stream(engine, every(samples, 3210), chunk_size=chunk)
    assert_log_probs_equal(recorder.sessions[-1].matrix, masked(engine, samples, chunk, left))


def test_with_the_pad_it_equals_the_pass_over_padded_audio(recorder: RecordingStrategy) -> None:
    engine = make_engine(decode_method="recording", finalize_silence_pad=True)
    samples = speech(20000)
    stream(engine, every(samples, 3200))
    found = recorder.sessions[-1].matrix
    expected = masked(engine, np.concatenate((samples, np.zeros(67 * 160, dtype=np.float32))), 16)
    assert len(found) % 16 == 0
    assert len(found) * 640 >= len(samples)
    assert_log_probs_equal(found, expected[: len(found)])


def test_streams_of_different_offsets_share_a_forward_and_equal_themselves(recorder: RecordingStrategy) -> None:
    engine = make_engine(decode_method="recording", num_left_chunks=2)
    clips = [speech(47000, 1), speech(30000, 2), speech(40000, 0)]
    ids, pieces = [], [every(clip, 5000) for clip in clips]
    for turn in range(20):
        if turn % 2 == 0 and len(ids) < len(clips):
            ids.append(engine.add_streaming_request())
        for index, request_id in enumerate(ids):
            if pieces[index]:
                engine.feed_chunk(request_id, pieces[index].pop(0), is_last=len(pieces[index]) == 0)
        engine.step()
    drain(engine)
    assert max(engine.metrics_snapshot().samples["engine_batch_size:streaming"]) == 3
    for clip, session in zip(clips, recorder.sessions, strict=True):
        assert_log_probs_equal(session.matrix, masked(engine, clip, 16, 2))


def test_a_reused_slot_holds_nothing_of_its_last_user(recorder: RecordingStrategy) -> None:
    """After loud noise that ended, and after loud noise that was aborted in the middle."""
    engine = make_engine(decode_method="recording", max_batch_size=1, num_left_chunks=2)
    loud = np.random.default_rng(0).uniform(-1, 1, 60000).astype(np.float32)
    stream(engine, [loud])
    stream(engine, every(speech(30000), 3200))
    assert_log_probs_equal(recorder.sessions[-1].matrix, masked(engine, speech(30000), 16, 2))
    aborted = engine.add_streaming_request()
    engine.feed_chunk(aborted, loud)
    for _ in range(3):
        engine.step()
    engine.abort_request(aborted)
    stream(engine, every(speech(30000), 3200))
    assert_log_probs_equal(recorder.sessions[-1].matrix, masked(engine, speech(30000), 16, 2))


def test_offline_batches_equal_single_passes(recorder: RecordingStrategy) -> None:
    engine = make_engine(decode_method="recording")
    clips = [speech(75000), speech(1400), speech(30000, 1), speech(47000, 0)]
    engine.transcribe_outputs(clips, streaming=False)
    assert engine.metrics_snapshot().samples["engine_batch_size:offline"] == [len(clips)]
    for clip, session in zip(clips, recorder.sessions, strict=True):
        assert_log_probs_equal(session.matrix, masked(engine, clip))


def test_every_session_is_closed_exactly_once(recorder: RecordingStrategy) -> None:
    engine = make_engine(decode_method="recording")
    engine.transcribe([speech(20000)] * 3)
    engine.transcribe_offline([speech(20000)] * 3)
    ids = [engine.add_streaming_request() for _ in range(STREAMS)]
    engine.step()
    for request_id in ids:
        engine.abort_request(request_id)
    assert_idle(engine)
    assert len(recorder.sessions) == 6 + STREAMS
    assert all(session.closed == 1 for session in recorder.sessions)
