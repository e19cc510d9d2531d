"""What the engine counts."""

from oasr_backend.engine import ASREngine
from oasr_backend.engine.metrics import MAX_SAMPLES, EngineMetrics
from tests.engine.engines import STREAMS, drain, make_engine, speech


def test_counters_stay_and_samples_are_handed_over_once() -> None:
    metrics = EngineMetrics()
    metrics.count("a")
    metrics.count("a", 2)
    metrics.observe("b", 0.5)
    first = metrics.snapshot()
    assert first.counters == {"a": 3} and first.samples == {"b": [0.5]}
    second = metrics.snapshot()
    assert second.counters == {"a": 3} and second.samples == {}


def test_samples_that_nobody_collects_are_bounded_and_counted() -> None:
    metrics = EngineMetrics()
    for _ in range(MAX_SAMPLES + 5):
        metrics.observe("b", 1.0)
    snapshot = metrics.snapshot()
    assert len(snapshot.samples["b"]) == MAX_SAMPLES
    assert snapshot.counters["engine_metric_samples_dropped"] == 5


def test_a_snapshot_does_not_change_afterwards() -> None:
    metrics = EngineMetrics()
    metrics.count("a")
    snapshot = metrics.snapshot()
    metrics.count("a")
    assert snapshot.counters == {"a": 1}


def test_streams_that_are_ready_together_share_a_step(engine: ASREngine) -> None:
    for _ in range(STREAMS):
        engine.add_request(speech(48000))
    drain(engine)
    snapshot = engine.metrics_snapshot()
    assert snapshot.samples["engine_batch_size:streaming"] == [STREAMS] * 5
    assert snapshot.counters["requests_admitted:streaming"] == STREAMS
    assert snapshot.counters["engine_audio_seconds:streaming"] == STREAMS * 3


def test_audio_is_counted_as_it_comes(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(8000))
    engine.feed_chunk(request_id, speech(4000), is_last=True)
    engine.transcribe_offline(speech(16000))
    counters = engine.metrics_snapshot().counters
    assert counters["engine_audio_seconds:streaming"] == 0.75
    assert counters["engine_audio_seconds:offline"] == 1.0
    assert counters["requests_admitted:offline"] == 1


def test_gauges_show_what_is_held(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(48000))
    for _ in range(5):
        engine.step()
    gauges = engine.metrics_snapshot().gauges
    assert gauges["engine_running"] == 1 and gauges["engine_decode_slots_in_use"] == 1
    assert gauges["engine_kv_blocks_used"] == 4
    assert gauges["engine_kv_blocks_capacity"] == STREAMS * 32


def test_tokens_of_an_output_that_waits_for_its_caller_count_once() -> None:
    engine = make_engine()
    mine = engine.add_streaming_request()
    engine.feed_chunk(mine, speech(20000), is_last=True)
    theirs = engine.transcribe_outputs([speech(16000)], streaming=False)
    (output,) = engine.step()
    assert output.request_id == mine and output.tokens[0]
    counted = engine.metrics_snapshot().counters["engine_tokens_generated"]
    assert counted == len(output.tokens[0]) + len(theirs[0].tokens[0])
