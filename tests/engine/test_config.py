"""What a user may configure."""

from pathlib import Path
from typing import Any

import pytest
import torch

from oasr_backend.config import EngineConfig, resolve
from oasr_backend.engine.batching import batching_policy
from oasr_backend.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("service_mode", "both"),
        ("dtype", "int8"),
        ("chunk_size", 0),
        ("chunk_size", 1.5),
        ("chunk_size", True),
        ("chunk_size", "16"),
        ("max_batch_size", 0),
        ("block_size_frames", -16),
        ("max_blocks_per_seq", 0),
        ("num_threads", 0),
        ("max_batch_frames", 0),
        ("max_num_blocks", -1),
        ("num_left_chunks", -2),
        ("num_left_chunks", 1.5),
        ("num_left_chunks", "4"),
        ("num_left_chunks", None),
        ("cache_memory_share", 0.0),
        ("cache_memory_share", 1.01),
        ("cache_memory_share", float("nan")),
        ("cache_memory_share", "half"),
        ("max_audio_seconds", -1.0),
        ("max_audio_seconds", float("nan")),
        ("max_wait_time", -0.1),
        ("max_wait_time", "0.2"),
        ("finalize_silence_pad", "false"),
        ("recycle_streaming_history", "false"),
        ("streaming_graph_pad_batch", "no"),
    ],
)
def test_an_impossible_value_is_named_at_once(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        EngineConfig(ckpt_dir="somewhere", **{name: value})


def test_a_policy_that_is_not_registered_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="schedule_policy 'lifo' is not supported; choose one of: fcfs"):
        batching_policy("lifo")


def test_every_default_is_possible() -> None:
    resolved = resolve(EngineConfig(ckpt_dir="somewhere"))
    assert resolved.ckpt_dir == Path("somewhere")
    assert resolved.streaming and resolved.offline
    assert resolved.num_threads >= 1
    assert resolved.max_batch_frames == 60_000
    assert not resolved.pad_batch


def test_a_mapping_with_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration beam, chunks; known are .*chunk_size"):
        EngineConfig.from_mapping({"chunks": 16, "beam": 10, "ckpt_dir": "x"})
    assert EngineConfig.from_mapping({"ckpt_dir": "x", "chunk_size": 8}).chunk_size == 8


@pytest.mark.parametrize(
    ("mode", "streaming", "offline"),
    [("mixed", True, True), ("streaming", True, False), ("offline", False, True)],
)
def test_service_modes(mode: str, streaming: bool, offline: bool) -> None:
    resolved = resolve(EngineConfig(ckpt_dir="x", service_mode=mode))
    assert (resolved.streaming, resolved.offline) == (streaming, offline)


def test_no_checkpoint_is_an_error() -> None:
    with pytest.raises(ConfigError, match="ckpt_dir is empty"):
        resolve(EngineConfig())


@pytest.mark.parametrize("device", ["tpu", "gpu", "mps", "cuda:999", ""])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="device"):
        resolve(EngineConfig(ckpt_dir="x", device=device))


@pytest.mark.parametrize("native", [True, False])
def test_auto_dtype_on_a_processor(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr("oasr_backend.config.multiplies_bfloat16", lambda: native)
    resolved = resolve(EngineConfig(ckpt_dir="x", device="cpu"))
    assert resolved.dtype is (torch.bfloat16 if native else torch.float32)


def test_an_explicit_dtype_is_kept_where_it_makes_sense() -> None:
    assert resolve(EngineConfig(ckpt_dir="x", device="cpu", dtype="bfloat16")).dtype is torch.bfloat16
    with pytest.raises(ConfigError, match="float16"):
        resolve(EngineConfig(ckpt_dir="x", device="cpu", dtype="float16"))


def test_history_that_needs_more_pages_than_a_stream_may_hold_is_refused() -> None:
    # 17 chunks of 16 frames in pages of 16, and one page that they may straddle.
    resolve(EngineConfig(ckpt_dir="x", num_left_chunks=16, max_blocks_per_seq=18))
    with pytest.raises(ConfigError, match=r"needs 18 pages a stream but max_blocks_per_seq is 17"):
        resolve(EngineConfig(ckpt_dir="x", num_left_chunks=16, max_blocks_per_seq=17))


@pytest.mark.parametrize("recycle", [False, True])
def test_pages_that_cannot_hold_one_chunk_are_refused(recycle: bool) -> None:
    """Such a stream would end at its first chunk, whatever its history."""
    with pytest.raises(ConfigError, match="max_blocks_per_seq"):
        resolve(
            EngineConfig(
                ckpt_dir="x",
                chunk_size=16,
                block_size_frames=4,
                max_blocks_per_seq=3,
                recycle_streaming_history=recycle,
            )
        )
