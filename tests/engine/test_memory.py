"""How many pages the cache gets, and where the number comes from."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.cache.history import bounded_blocks
from oasr_backend.engine import ASREngine, probe
from oasr_backend.engine.memory import (
    CacheGeometry,
    DeviceReading,
    MemoryBudget,
    PoolSize,
    cache_geometry,
    gpu_budget,
    host_budget,
    size_pool,
)
from oasr_backend.engine.runtimes import paged
from oasr_backend.engine.runtimes.paged import PagedRuntime
from oasr_backend.errors import ConfigError
from oasr_backend.models.config import CacheSpec
from tests.engine.engines import RecordingStrategy, assert_same, every, make_engine, speech, stream

MIB, GIB = 1 << 20, 1 << 30


def geometry(**changes: Any) -> CacheGeometry:
    values: dict[str, Any] = {"chunk": 16, "left_chunks": -1, "block_size": 16, "max_blocks_per_seq": 512}
    return cache_geometry(**{**values, **changes})


def size(
    shape: CacheGeometry | None = None, available: int = 10**9, max_num_blocks: int | None = None, streams: int = 4
) -> PoolSize:
    return size_pool(
        shape or geometry(),
        streams=streams,
        bytes_per_block=1000,
        max_num_blocks=max_num_blocks,
        budget=lambda: MemoryBudget(available, f"available {available} bytes", "the_share"),
    )


def never(*args: object) -> Any:
    raise AssertionError("nothing is to be measured")


# geometry


def test_an_unlimited_history_fills_the_block_table() -> None:
    assert geometry() == CacheGeometry(
        block_size=16, left_chunks=-1, least_blocks=8, blocks_per_stream=512, trained_window=None
    )


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"max_blocks_per_seq": 5}, 5),
        ({"block_size": 4}, 8),
        ({"block_size": 2}, 9),
        ({"block_size": 1, "chunk": 20}, 21),
        ({"block_size": 2, "max_blocks_per_seq": 8}, 8),
    ],
)
def test_a_stream_needs_eight_pages_or_a_chunk_and_one_more(changes: dict[str, Any], least: int) -> None:
    assert geometry(**changes).least_blocks == least


def test_a_bounded_history_needs_its_bound() -> None:
    assert geometry(left_chunks=4) == CacheGeometry(
        block_size=16, left_chunks=4, least_blocks=6, blocks_per_stream=6, trained_window=None
    )


@pytest.mark.parametrize(
    ("window", "chunk", "blocks"), [(70, 16, 6), (64, 16, 5), (65, 16, 6), (70, 14, 6), (56, 14, 5), (1, 16, 2)]
)
def test_a_trained_window_has_pages_of_a_chunk_and_ignores_what_was_configured(
    window: int, chunk: int, blocks: int
) -> None:
    for left_chunks, block_size in [(-1, 16), (0, 7), (30, 100)]:
        assert geometry(
            trained_window=window, chunk=chunk, left_chunks=left_chunks, block_size=block_size
        ) == CacheGeometry(
            block_size=chunk,
            left_chunks=blocks - 1,
            least_blocks=blocks,
            blocks_per_stream=blocks,
            trained_window=window,
        )


def test_a_trained_window_beyond_the_block_table_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"trained window of 70 frames at chunk_size 16 needs 6 pages a stream but max_blocks_per_seq is 5; raise",
    ):
        geometry(trained_window=70, max_blocks_per_seq=5)


# budgets


def test_a_host_gives_a_share() -> None:
    budget = host_budget(10 * GIB, 0.25)
    assert budget.available_bytes == 2684354560
    assert budget.lever == "cache_memory_share"
    assert budget.derivation == (
        "host memory 10.00 GiB (10737418240 bytes) * cache_memory_share 0.25 = available 2.50 GiB (2684354560 bytes)"
    )


READING = DeviceReading(total_bytes=24 * GIB, free_bytes=20 * GIB)


def gpu(peak: int | None, reading: DeviceReading = READING, utilization: float = 0.9) -> MemoryBudget:
    return gpu_budget(utilization, lambda: reading, lambda: peak)


@pytest.mark.parametrize(
    ("peak", "reserve"),
    [
        (GIB, 1610612736),
        (3, 256 * MIB),
        (0, 256 * MIB),
        (178956970, 268435456),  # 1.5 times is one byte short of 256 MiB
        (178956971, 268435457),  # rounded up
        (None, 5798205849),  # a quarter of 23192823398
    ],
)
def test_a_gpu_gives_what_residents_and_activations_leave(peak: int | None, reserve: int) -> None:
    assert gpu(peak).available_bytes == 23192823398 - 4294967296 - reserve


def test_a_failed_probe_on_a_small_card_leaves_the_least_reserve() -> None:
    small = DeviceReading(total_bytes=GIB, free_bytes=GIB)
    assert gpu(None, small, utilization=0.5).available_bytes == GIB // 2 - 256 * MIB
    assert gpu(None, small, utilization=1.0).available_bytes == GIB - 256 * MIB
    assert gpu(None, DeviceReading(2 * GIB, 2 * GIB), utilization=1.0).available_bytes == 2 * GIB - 512 * MIB


def test_a_full_gpu_gives_nothing() -> None:
    assert gpu(0, DeviceReading(24 * GIB, GIB)).available_bytes == 0
    assert size_error(gpu(0, DeviceReading(24 * GIB, GIB))).endswith("gpu_memory_utilization or max_num_blocks")


def test_the_derivation_has_every_term() -> None:
    budget = gpu(GIB)
    assert budget.lever == "gpu_memory_utilization"
    assert budget.derivation == (
        "total 24.00 GiB (25769803776 bytes) * gpu_memory_utilization 0.9 = 21.60 GiB (23192823398 bytes), "
        "less resident 4.00 GiB (4294967296 bytes), "
        "less reserve 1.50 GiB (1610612736 bytes) (1.5 * the probe forward's 1.00 GiB (1073741824 bytes), "
        "at least 256.00 MiB (268435456 bytes)) "
        "= available 16.10 GiB (17287243366 bytes)"
    )
    assert "(a quarter of 23192823398 bytes, for the probe forward failed, at least" in gpu(None).derivation


def test_the_probe_goes_before_the_reading() -> None:
    calls: list[str] = []

    def measure() -> DeviceReading:
        calls.append("measure")
        return READING

    def run_probe() -> int:
        calls.append("probe")
        return 0

    gpu_budget(0.9, measure, run_probe)
    assert calls == ["probe", "measure"]


# pool


def test_all_that_streams_can_address_when_memory_allows() -> None:
    assert size() == PoolSize(num_blocks=4 * 512, blocks_per_stream=512)
    assert size(available=4 * 512 * 1000) == PoolSize(num_blocks=4 * 512, blocks_per_stream=512)
    assert size(available=4 * 512 * 1000 - 1) == PoolSize(num_blocks=4 * 511, blocks_per_stream=511)


def test_a_bounded_history_needs_no_more_than_its_bound() -> None:
    assert size(geometry(left_chunks=4)) == PoolSize(num_blocks=4 * 6, blocks_per_stream=6)


def test_a_trained_window_needs_no_more_than_its_pages() -> None:
    # 160 pages where the configuration alone asks for 16384.
    window = geometry(trained_window=56, chunk=14)
    assert size(window, streams=32, available=10**9) == PoolSize(num_blocks=160, blocks_per_stream=5)


def test_memory_bounds_an_unlimited_history() -> None:
    assert size(available=41_999) == PoolSize(num_blocks=40, blocks_per_stream=10)
    assert size(available=32_000) == PoolSize(num_blocks=32, blocks_per_stream=8)


def test_an_explicit_pool_is_shared_equally_and_asks_for_no_budget() -> None:
    for pages, expected in [(50, PoolSize(48, 12)), (10_000, PoolSize(4 * 512, 512))]:
        assert size_pool(geometry(), streams=4, bytes_per_block=1000, max_num_blocks=pages, budget=never) == expected


def size_error(budget: MemoryBudget, shape: CacheGeometry | None = None, max_num_blocks: int | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        size_pool(
            shape or geometry(),
            streams=32,
            bytes_per_block=199_680,
            max_num_blocks=max_num_blocks,
            budget=lambda: budget,
        )
    return str(caught.value)


def test_too_little_of_a_gpu_is_refused_with_the_arithmetic_and_the_levers() -> None:
    reading = DeviceReading(total_bytes=4 * GIB, free_bytes=737_932_186)
    assert size_error(gpu(100 * MIB, reading)) == (
        "the cache needs 8 pages for each of 32 streams, 256 in all of 48.75 MiB (51118080 bytes), and there is room "
        "for 200: total 4.00 GiB (4294967296 bytes) * gpu_memory_utilization 0.9 = 3.60 GiB (3865470566 bytes), "
        "less resident 3.31 GiB (3557035110 bytes), "
        "less reserve 256.00 MiB (268435456 bytes) (1.5 * the probe forward's 100.00 MiB (104857600 bytes), "
        "at least 256.00 MiB (268435456 bytes)) = available 38.15 MiB (40000000 bytes) "
        "// 199680 bytes a page = 200 pages; lower max_batch_size, keep less history (num_left_chunks) "
        "or raise gpu_memory_utilization or max_num_blocks"
    )


@pytest.mark.parametrize(
    ("available", "max_num_blocks", "shape", "words"),
    [
        (31_999, None, geometry(), "needs 8 pages for each of 4 streams, 32 in all .* room for 31: available 31999"),
        (10**9, 31, geometry(), "needs 8 pages for each of 4 streams, 32 in all .* room for 31: max_num_blocks 31; "),
        (10**9, 23, geometry(left_chunks=4), "needs 6 pages for each of 4 streams"),
        (23_999, None, geometry(left_chunks=4), "keep less history .* or raise the_share or max_num_blocks$"),
        (10**9, 23, geometry(left_chunks=4), "keep less history .* or raise max_num_blocks$"),
        (23_000, None, geometry(trained_window=70), "; lower max_batch_size or raise the_share or max_num_blocks$"),
        (0, None, geometry(), "room for 0"),
    ],
)
def test_too_little_is_refused(available: int, max_num_blocks: int | None, shape: CacheGeometry, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        size(shape, available, max_num_blocks)


@pytest.mark.parametrize(
    ("available", "max_num_blocks", "limit"),
    [
        (10**9, None, "the block table"),
        (2_048_000, None, "the block table"),
        (2_047_999, None, "memory"),
        (0, 2048, "the block table"),
        (0, 2047, "max_num_blocks"),
    ],
)
def test_one_line_says_what_was_derived_and_what_limits_it(
    caplog: pytest.LogCaptureFixture, available: int, max_num_blocks: int | None, limit: str
) -> None:
    with caplog.at_level(logging.INFO, "oasr_backend.engine.memory"):
        found = size(available=available, max_num_blocks=max_num_blocks)
    (record,) = caplog.records
    source = (
        f"max_num_blocks {max_num_blocks}"
        if max_num_blocks
        else f"available {available} bytes // 1000 bytes a page = {available // 1000} pages"
    )
    total = {2048: "1.95 MiB (2048000 bytes)", 2044: "1.95 MiB (2044000 bytes)"}[found.num_blocks]
    assert record.getMessage() == (
        f"cache of {found.num_blocks} pages, {found.blocks_per_stream} for each of 4 streams, of 16 frames and "
        f"1000 bytes each, {total} in all, limited by {limit}: least 32, most 2048; {source}"
    )


@given(
    st.integers(1, 64),
    st.integers(1, 40),
    st.integers(-1, 8),
    st.integers(1, 40),
    st.integers(1, 600),
    st.integers(1, 5000),
    st.booleans(),
)
def test_every_stream_has_its_share_or_nothing_is_built(
    streams: int, chunk: int, left: int, block: int, max_blocks: int, pool: int, explicit: bool
) -> None:
    try:
        found = size(
            geometry(chunk=chunk, left_chunks=left, block_size=block, max_blocks_per_seq=max_blocks),
            available=pool * 1000,
            max_num_blocks=pool if explicit else None,
            streams=streams,
        )
    except ConfigError:
        return
    assert found.num_blocks == found.blocks_per_stream * streams <= pool
    assert found.blocks_per_stream >= 1
    if left >= 0:
        assert found.blocks_per_stream == bounded_blocks(chunk, left, block)
    else:
        assert found.blocks_per_stream <= max_blocks


# the runtime


def pages(engine: ASREngine) -> int:
    return engine._runner.runtime.usage.blocks_capacity


def test_a_cpu_engine_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_device", "peak_bytes", "widest_forward"):
        monkeypatch.setattr(paged, name, never)
    monkeypatch.setattr(paged, "memory_bytes", lambda: 4 * GIB)
    engine = make_engine()
    assert pages(engine) == 4 * 32
    page = engine._runner._model.cache_spec.bytes_per_block(16, 4)
    # Room for 10 pages a stream and a little more.
    monkeypatch.setattr(paged, "memory_bytes", lambda: 4 * page * 10 + page)
    assert pages(make_engine(cache_memory_share=1.0)) == 40


def test_an_explicit_capacity_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_device", "peak_bytes", "widest_forward", "memory_bytes"):
        monkeypatch.setattr(paged, name, never)
    assert pages(make_engine(max_num_blocks=64)) == 64


@pytest.mark.parametrize("probe_works", [True, False])
def test_a_gpu_is_probed_and_read(monkeypatch: pytest.MonkeyPatch, engine: ASREngine, probe_works: bool) -> None:
    device = torch.device("cuda", 0)
    config = replace(engine.config, device=device, gpu_memory_utilization=0.5)
    model = engine._runner._model
    forwards: list[tuple[object, ...]] = []

    def peak(forward: Callable[[], None], probed: torch.device) -> int | None:
        assert probed == device
        forward()
        return GIB if probe_works else None

    monkeypatch.setattr(paged, "widest_forward", lambda *args: forwards.append(args))
    monkeypatch.setattr(paged, "peak_bytes", peak)
    monkeypatch.setattr(paged, "read_device", lambda read: READING if read == device else never())
    monkeypatch.setattr(paged, "memory_bytes", never)
    budget = paged._budget(model, geometry(), config)
    reserve = 3 * GIB // 2 if probe_works else 3 * GIB
    assert budget.available_bytes == 12 * GIB - 4 * GIB - reserve
    assert forwards == [(model, geometry(), config)]


@pytest.mark.parametrize("left_chunks", [-1, 2])
@pytest.mark.parametrize("mode", ["mixed", "streaming"])
def test_the_probed_forward_runs_at_the_widest_shape(
    monkeypatch: pytest.MonkeyPatch, left_chunks: int, mode: str
) -> None:
    engine = make_engine(num_left_chunks=left_chunks, service_mode=mode, max_batch_frames=2000)
    model = engine._runner._model
    shapes: list[tuple[int, ...]] = []
    for name in ("encode_chunk", "encode_clips"):
        call = getattr(model, name)

        def record(features: torch.Tensor, *rest: object, call: Callable[..., object] = call) -> object:
            shapes.append(tuple(features.shape))
            return call(features, *rest)

        monkeypatch.setattr(model, name, record)
    shape = geometry(left_chunks=left_chunks, max_blocks_per_seq=32)
    probe.widest_forward(model, shape, engine.config)
    assert shapes == [(4, 67, 80), (4, 500, 80)][: 2 if mode == "mixed" else 1]


def test_a_probe_reports_the_peak_above_what_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: done.append("reset"))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5000)
    device = torch.device("cuda", 0)
    assert probe.peak_bytes(lambda: done.append("forward"), device) == 4000
    assert done == ["synchronize", "reset", "forward", "synchronize"]


def test_a_failing_probe_reports_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("synchronize", "reset_peak_memory_stats", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda device: 0)

    def fail() -> None:
        raise torch.OutOfMemoryError("too wide")

    assert probe.peak_bytes(fail, torch.device("cuda", 0)) is None
    assert "the probe forward failed" in caplog.text


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_engine_derives_its_pool(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "oasr_backend.engine"):
        engine = make_engine(device="cuda", dtype="float16")
    assert "the probe forward failed" not in caplog.text
    assert "limited by the block table" in caplog.text and "less resident" in caplog.text
    assert pages(engine) == 4 * 32
    reading = probe.read_device(engine.config.device)
    assert 0 < reading.free_bytes < reading.total_bytes
    model = engine._runner._model
    shape = geometry(max_blocks_per_seq=32)
    peak = probe.peak_bytes(lambda: probe.widest_forward(model, shape, engine.config), engine.config.device)
    assert peak is not None and 0 < peak < reading.total_bytes


# a trained window


def with_window(engine: ASREngine, window: int, **changes: Any) -> ASREngine:
    """The engine as if its model had been trained with a window."""
    model = engine._runner._model
    model.cache_spec = replace(model.cache_spec, trained_window=window)
    config = replace(engine.config, **changes)
    with torch.inference_mode():
        engine._runner.streams = PagedRuntime(model, config)
    return engine


def test_a_trained_window_is_what_a_stream_sees(recorder: RecordingStrategy) -> None:
    samples = speech(60_000)
    bounded = stream(make_engine(decode_method="recording", num_left_chunks=3), every(samples, 8000))
    engine = with_window(make_engine(decode_method="recording"), 48)
    runtime = engine._runner.runtime
    assert isinstance(runtime, PagedRuntime)
    assert (runtime.attention.pool.num_blocks, runtime.attention.policy.block_size) == (4 * 4, 16)
    trained = stream(engine, every(samples, 8000))
    assert_same(trained, bounded)
    first, second = recorder.sessions
    np.testing.assert_allclose(second.matrix, first.matrix, atol=1e-4)
    unlimited = stream(make_engine(decode_method="recording"), every(samples, 8000))
    assert unlimited.finish_reason == "stop"
    assert np.abs(recorder.sessions[2].matrix - first.matrix).max() > 1e-3


@pytest.mark.parametrize("window", [41, 48, 64, 3])
@pytest.mark.parametrize("chunk", [16, 8, 4, 1])
def test_a_stream_of_any_length_fits_into_its_window(window: int, chunk: int) -> None:
    engine = with_window(make_engine(), window)
    request_id = engine.add_streaming_request(chunk_size=chunk)
    engine.feed_chunk(request_id, speech(80_000), is_last=True)
    (final,) = engine.run()
    assert final.finish_reason == "stop" and final.audio_seconds == 5.0


def test_a_chunk_that_does_not_divide_a_trained_window_is_refused() -> None:
    engine = with_window(make_engine(), 48)
    engine.add_streaming_request("six", chunk_size=6)
    engine.add_streaming_request("eight", chunk_size=8)
    (output,) = engine.step()
    assert (output.request_id, output.finish_reason) == ("six", "error")
    assert engine.num_running == 1


def test_what_a_trained_window_makes_pointless_is_named(caplog: pytest.LogCaptureFixture) -> None:
    spec = CacheSpec(1, 1, 1, 1, 0, 0, trained_window=70)
    config = make_engine().config

    def warnings(**changes: Any) -> list[str]:
        caplog.clear()
        paged.geometry_of(spec, replace(config, **changes))
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    assert warnings() == []
    assert warnings(num_left_chunks=4) == [
        "the model was trained to see 70 frames of history, in pages of a chunk each; ignored: num_left_chunks 4"
    ]
    assert warnings(num_left_chunks=5) == []
    (both,) = warnings(num_left_chunks=0, block_size_frames=20)
    assert both.endswith("ignored: num_left_chunks 0, block_size_frames 20")
