"""Streams that begin, end, and are cut off."""

import numpy as np
import pytest

from oasr_backend.engine import ASREngine
from tests.engine.engines import (
    BATCH_NORM,
    STREAMS,
    assert_consistent,
    assert_idle,
    assert_same,
    drain,
    every,
    finals,
    make_engine,
    speech,
    stream,
)


def test_feeding_after_the_last_piece_is_an_error(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(20000), is_last=True)
    for piece, is_last in [(speech(400), False), ([], True)]:
        with pytest.raises(RuntimeError, match="has had its last chunk"):
            engine.feed_chunk(request_id, piece, is_last)
    assert_same(finals(engine.run())[request_id], stream(engine, [speech(20000)]))


def test_feeding_an_unknown_or_ended_stream_is_an_error(engine: ASREngine) -> None:
    with pytest.raises(KeyError, match="no stream 'nobody'"):
        engine.feed_chunk("nobody", speech(400))
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(400), is_last=True)
    engine.run()
    with pytest.raises(KeyError, match=request_id):
        engine.feed_chunk(request_id, speech(400))


def test_a_clip_cannot_be_fed(engine: ASREngine) -> None:
    request_id = engine.add_request(speech(8000), streaming=False)
    with pytest.raises(KeyError):
        engine.feed_chunk(request_id, speech(400))
    assert len(engine.run()) == 1


@pytest.mark.parametrize(
    "chunk",
    [
        np.array([0.0, np.nan], dtype=np.float32),
        np.array([np.inf, 0.0], dtype=np.float32),
        np.array([1e38], dtype=np.float32),
        np.zeros((2, 400), dtype=np.float32),
        np.zeros(400, dtype=np.int32),
        "clip.wav",
        None,
    ],
    ids=["nan", "inf", "1e38", "stereo", "int32", "path", "none"],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_refused_chunk_leaves_the_stream_as_it_was(engine: ASREngine, chunk: object, is_last: bool) -> None:
    samples = speech(40000)
    expected = stream(engine, every(samples, 8000))
    request_id = engine.add_streaming_request()
    outputs = []
    for piece in every(samples, 8000):
        with pytest.raises((ValueError, TypeError)):
            engine.feed_chunk(request_id, chunk, is_last)
        engine.feed_chunk(request_id, piece)
        outputs += engine.step()
    engine.feed_chunk(request_id, [], is_last=True)
    assert_same(finals([*outputs, *drain(engine)])[request_id], expected)
    assert_idle(engine)


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("last", [False, True])
def test_a_stream_can_be_aborted_at_any_time(engine: ASREngine, steps: int, last: bool) -> None:
    """Its neighbour never notices, and nothing of it is left."""
    samples = speech(60000)
    expected = stream(engine, [samples])
    doomed, neighbour = engine.add_streaming_request(), engine.add_streaming_request()
    engine.feed_chunk(doomed, speech(60000, 1), is_last=last)
    engine.feed_chunk(neighbour, samples, is_last=True)
    outputs = [output for _ in range(steps) for output in engine.step()]
    assert engine.abort_request(doomed) is (doomed not in finals(outputs))
    assert engine.abort_request(doomed) is False
    assert_consistent(engine)
    with pytest.raises(KeyError):
        engine.feed_chunk(doomed, speech(400))
    after = drain(engine)
    assert doomed not in {output.request_id for output in after}
    assert_same(finals([*outputs, *after])[neighbour], expected)
    assert_idle(engine)


def test_a_waiting_request_can_be_aborted(engine: ASREngine) -> None:
    clip = engine.add_request(speech(8000), streaming=False)
    attached = engine.add_request(speech(8000))
    live = engine.add_streaming_request()
    engine.feed_chunk(live, speech(8000))
    assert engine.num_waiting == 3
    for request_id in (clip, attached, live):
        assert engine.abort_request(request_id)
    assert_idle(engine)
    assert engine.run() == []


def test_aborting_the_unknown_is_nothing(engine: ASREngine) -> None:
    assert engine.abort_request("nobody") is False


def test_an_aborted_id_may_be_used_at_once(engine: ASREngine) -> None:
    expected = stream(engine, [speech(20000)])
    engine.feed_chunk(engine.add_streaming_request("a"), speech(30000, 1))
    engine.step()
    engine.abort_request("a")
    engine.add_streaming_request("a")
    engine.feed_chunk("a", speech(20000), is_last=True)
    assert_same(finals(engine.run())["a"], expected)


def test_a_stream_that_never_gets_audio_ends_empty(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, [])
    assert engine.step() == [] and engine.num_running == 1
    engine.feed_chunk(request_id, [], is_last=True)
    (final,) = engine.run()
    assert (final.text, final.finish_reason, final.audio_seconds) == ("", "stop", 0.0)
    assert_idle(engine)


def test_an_open_stream_that_waits_is_no_work(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(20000))
    drain(engine)
    assert not engine.has_work
    assert engine.run() == [] and engine.num_running == 1
    engine.feed_chunk(request_id, speech(1))
    assert engine.has_work


def test_many_generations_of_streams_leave_nothing(engine: ASREngine) -> None:
    """Every way to end, over and over, in slots that are always full."""
    expected = stream(engine, [speech(12000)])
    for generation in range(6):
        ids = [engine.add_streaming_request() for _ in range(STREAMS)]
        for index, request_id in enumerate(ids):
            engine.feed_chunk(request_id, speech(12000), is_last=index != 1)
        engine.step()
        assert engine.abort_request(ids[1])
        if generation % 2:
            engine.step()
            engine.abort_request(ids[2])
        ended = finals(drain(engine))
        assert_same(ended[ids[0]], expected)
        assert_same(ended[ids[3]], expected)
        assert_idle(engine)


@pytest.mark.parametrize("recycle", [False, True])
def test_at_the_page_ceiling_a_stream_ends_or_recycles(recycle: bool) -> None:
    engine = make_engine(max_blocks_per_seq=3, recycle_streaming_history=recycle)
    samples = speech(75323)
    neighbour = speech(16000)
    expected = stream(make_engine(), [neighbour])
    full = stream(make_engine(), [samples])
    long, short = engine.add_streaming_request(), engine.add_streaming_request()
    engine.feed_chunk(long, samples)
    engine.feed_chunk(short, neighbour, is_last=True)
    outputs = drain(engine)
    counters = engine.metrics_snapshot().counters
    if recycle:
        assert long not in finals(outputs)
        engine.feed_chunk(long, [], is_last=True)
        outputs += drain(engine)
        final = finals(outputs)[long]
        assert final.finish_reason == "stop"
        assert final.timestamps[-1] > 3 * 16 * 0.04
        assert "engine_kv_exhausted" not in counters
    else:
        final = finals(outputs)[long]
        assert final.finish_reason == "length"
        # Three pages are 48 frames: what was said by then is kept.
        within = [token for token, time in zip(full.tokens[0], full.timestamps, strict=True) if time < 48 * 0.04]
        assert final.tokens == (tuple(within),)
        assert final.samples_done == len(samples)
        assert counters["engine_kv_exhausted"] == 1
        with pytest.raises(KeyError):
            engine.feed_chunk(long, speech(400))
    assert_same(finals(outputs)[short], expected)
    assert_idle(engine)


@pytest.mark.parametrize(
    ("options", "pages", "seconds"),
    [
        # Past the end of WeNet's table of 5,000 positions.
        ({"num_left_chunks": 4}, 5, 205),
        ({"num_left_chunks": 4, "block_size_frames": 5}, 17, 40),
        ({"max_blocks_per_seq": 6, "recycle_streaming_history": True}, 6, 40),
    ],
    ids=["bounded", "bounded-small-pages", "recycling"],
)
def test_a_long_stream_holds_no_more_pages_than_a_short_one(
    options: dict[str, object], pages: int, seconds: int
) -> None:
    engine = make_engine(BATCH_NORM, max_batch_size=1, **options)
    request_id = engine.add_streaming_request()
    held = []
    for second in range(0, seconds, 5):
        engine.feed_chunk(request_id, speech(5 * 16000, second % 3))
        drain(engine)
        held.append(engine._runner.runtime.attention.held_blocks(0))
        assert engine.metrics_snapshot().gauges["engine_kv_blocks_used"] == held[-1]
    assert set(held[1:]) <= {pages - 1, pages}
    engine.feed_chunk(request_id, [], is_last=True)
    final = finals(drain(engine))[request_id]
    assert final.finish_reason == "stop"
    assert final.timestamps[-1] > seconds - 3 and len(final.tokens[0]) > seconds
    assert_idle(engine)


def test_a_clip_longer_than_any_position_table() -> None:
    engine = make_engine(BATCH_NORM, service_mode="offline")
    (final,) = engine.transcribe_outputs([speech(202 * 16000)], streaming=False)
    assert final.finish_reason == "stop" and final.timestamps[-1] > 5000 * 0.04
