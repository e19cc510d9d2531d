"""What the engine counts."""

from collections.abc import Callable

import pytest
from torch.profiler import ProfilerActivity, profile

from oasr_backend.engine import ASREngine
from oasr_backend.engine.metrics import MAX_SAMPLES, STREAMING_STAGES, EngineMetrics, TimeSpent, series
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


def test_time_is_accounted_to_steps_and_stages(engine: ASREngine) -> None:
    before = engine.time_spent
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(48000))
    # The first window is whole with the second stride.
    for _ in range(2):
        engine.step()
    spent = engine.time_spent.since(before)
    assert spent.steps == 2
    assert set(spent.stages) == {f"streaming.{stage}" for stage in STREAMING_STAGES}
    assert 0 < sum(spent.stages.values()) <= spent.seconds
    assert engine.time_spent.since(engine.time_spent) == TimeSpent(0, 0.0, {})


def test_decoded_audio_is_counted_by_whole_windows(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(48000))
    for _ in range(2):
        engine.step()
    counters = engine.metrics_snapshot().counters
    assert counters["engine_audio_decoded_seconds:streaming"] == pytest.approx(engine.chunk_seconds)
    assert counters["engine_busy_seconds"] > 0


def test_every_series_that_may_come_is_known_before(engine: ASREngine) -> None:
    engine.transcribe(speech(48000))
    engine.transcribe_offline(speech(48000))
    snapshot = engine.metrics_snapshot()
    assert set(snapshot.samples) <= set(engine.metric_series)
    assert set(snapshot.counters) - {"engine_metric_samples_dropped"} <= set(engine.metric_series)
    assert len(set(engine.metric_series)) == len(engine.metric_series)


def test_an_engine_of_one_kind_has_no_series_of_the_other() -> None:
    of_streams = [name for name in series(streaming=True, offline=False) if not name.startswith("requests_failed")]
    of_clips = [name for name in series(streaming=False, offline=True) if not name.startswith("requests_failed")]
    assert not [name for name in of_streams if "offline" in name or "padding" in name]
    assert not [name for name in of_clips if "streaming" in name]


def test_a_stage_that_fails_is_not_observed() -> None:
    metrics = EngineMetrics()
    with pytest.raises(RuntimeError), metrics.step(), metrics.stage("streaming.encode"):
        raise RuntimeError
    assert metrics.snapshot().samples == {}
    assert metrics.spent.steps == 1 and metrics.spent.stages == {}


def chains_of(work: Callable[[], object]) -> set[tuple[str, ...]]:
    """The ranges of ours that a profiler shows, each with those that it lies in, outermost first."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        work()
    chains = set()
    for event in profiled.events():
        if event.name not in RANGES:
            continue
        chain = []
        inner = event
        while inner is not None:
            if inner.name in RANGES:
                chain.append(inner.name)
            inner = inner.cpu_parent
        chains.add(tuple(reversed(chain)))
    return chains


FEATURES = ("pad+pin", "h2d", "feature")
STREAMING = {
    ("engine.step",),
    *(("engine.step", name) for name in ("schedule", "offline_batch", "allocate_stream", "extract_fbank")),
    *(("engine.step", name) for name in ("forward_streaming", "decode_streaming", "finalize_streams")),
    *(("engine.step", "extract_fbank", name) for name in (*FEATURES, "distribute")),
    ("engine.step", "forward_streaming", "commit"),
    *(("engine.step", "forward_streaming", rows) for rows in ("batched_paged[1]", "batched_paged[2]")),
    *(
        ("engine.step", "forward_streaming", rows, name)
        for rows in ("batched_paged[1]", "batched_paged[2]")
        for name in ("prepare_chunk", "encoder_call")
    ),
}
OFFLINE = {
    ("engine.step",),
    *(("engine.step", name) for name in ("schedule", "offline_batch", "finalize_streams")),
    *(("engine.step", "offline_batch", f"offline.{name}") for name in ("collate", "forward", "decode", "finalize")),
    *(("engine.step", "offline_batch", "offline.collate", name) for name in FEATURES),
    ("engine.step", "offline_batch", "offline.forward", "encoder_call"),
}
RANGES = {name for chain in STREAMING | OFFLINE for name in chain}


def test_a_profiler_shows_the_stages_of_streams_one_in_another() -> None:
    engine = make_engine(nvtx=True)
    # The longer one goes on alone.
    assert chains_of(lambda: engine.transcribe([speech(48000), speech(24000)])) == STREAMING


@pytest.mark.parametrize("packed", [False, True])
def test_a_profiler_shows_the_stages_of_clips_one_in_another(packed: bool) -> None:
    engine = make_engine(nvtx=True, service_mode="offline", enable_sequence_packing=packed)
    assert chains_of(lambda: engine.transcribe_offline([speech(48000), speech(24000)])) == OFFLINE


def test_a_profiler_shows_no_stage_unless_asked() -> None:
    engine = make_engine()
    assert not chains_of(lambda: engine.transcribe(speech(48000)))
    assert not chains_of(lambda: engine.transcribe_offline(speech(48000)))
