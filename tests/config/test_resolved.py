"""What the engine reads, given what the user wrote and the machine."""

from collections.abc import MutableMapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from oasr_backend.config import EngineConfig, ResolvedConfig, resolve
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.graphs.capture import CAPTURE_BACKENDS
from oasr_backend.graphs.replay import ReplayCapture


def test_every_default_is_possible() -> None:
    resolved = resolve(EngineConfig(ckpt_dir="somewhere"))
    assert resolved.ckpt_dir == Path("somewhere")
    assert resolved.checkpoint_name is None
    assert resolved.architecture is None
    assert resolved.unit_table is None
    assert resolved.sentencepiece_model is None
    assert resolved.decode_method == "ctc_greedy"
    assert resolved.rescoring_ctc_weight is None
    assert resolved.rescoring_reverse_weight is None
    assert resolved.streaming and resolved.offline
    assert resolved.num_threads >= 1
    assert resolved.feature_config is None
    assert resolved.audio_scale is None
    assert resolved.max_batch_frames == 60_000
    assert resolved.max_audio_seconds == 600.0
    assert resolved.preferred_batch_size == ()
    assert resolved.partition_policy == "frames"
    assert resolved.streaming_runtime is None
    assert resolved.batch_ladder is None
    assert resolved.pad_batch is None
    assert resolved.offline_decode_overlap == (resolved.device.type == "cuda")
    assert resolved.streaming_feature_lookahead == (resolved.device.type == "cuda")


# What is handed on as it was written.
HANDED_ON: dict[str, Any] = {
    "checkpoint_name": "avg_30.pt",
    "architecture": "transformer",
    "num_threads": 3,
    "gpu_memory_utilization": 0.5,
    "max_pinned_audio_seconds": 7.0,
    "max_pinned_audio_total_seconds": 70.0,
    "gc_freeze": False,
    "feature_config": FeatureSpec(num_mel_bins=40),
    "audio_scale": 1.0,
    "chunk_size": 8,
    "num_left_chunks": 4,
    "finalize_silence_pad": False,
    "recycle_streaming_history": True,
    "streaming_cohort_admit": False,
    "partial_decode_interval": 0,
    "nvtx": True,
    "block_size_frames": 8,
    "max_num_blocks": 640,
    "max_blocks_per_seq": 32,
    "cache_memory_share": 0.5,
    "max_batch_size": 16,
    "max_batch_frames": 5000,
    "preferred_batch_size": (4, 8),
    "schedule_policy": "bucket",
    "length_window_factor": 2,
    "length_bucket_ratio": 0.5,
    "max_offline_pad_ratio": 2.0,
    "max_wait_time": 1.0,
    "partition_policy": "count",
    "max_packed_frames": 1000,
    "max_audio_seconds": 40.0,
    "long_form": True,
    "long_form_window_seconds": 20.0,
    "long_form_overlap_seconds": 2.0,
    "overlap_admit": True,
    "decode_method": "my_own",
    "decode_options": {"beam": 10},
    "rescoring_ctc_weight": 0.3,
    "rescoring_reverse_weight": 0.2,
    "endpointing": True,
    "endpoint_silence_ms": 500.0,
    "endpoint_start_ms": 3000.0,
    "endpoint_max_ms": 10000.0,
    "endpoint_history": "keep",
}
# Handed on where steps are captured; elsewhere they are refused.
OF_GRAPHS: dict[str, Any] = {
    "use_cuda_graphs": False,
    "use_offline_cuda_graphs": False,
    "streaming_graph_cache_growth": 1.0,
    "streaming_graph_max_shapes": 64,
    "offline_graph_batch_buckets": (8, 16),
    "offline_graph_frame_granularity": 1,
    "offline_graph_max_frames": 1024,
    "offline_graph_max_captures": 8,
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_a_value_is_handed_on(name: str) -> None:
    value = HANDED_ON[name]
    assert getattr(EngineConfig(), name) != value
    assert getattr(resolve(EngineConfig(ckpt_dir="x", **{name: value})), name) == value


def test_nothing_resolved_is_left_untested() -> None:
    derived = {
        "ckpt_dir",
        "unit_table",
        "sentencepiece_model",
        "quantization",
        "device",
        "dtype",
        "streaming",
        "offline",
        "streaming_runtime",
        "pad_batch",
        "batch_ladder",
        "offline_decode_overlap",
        "streaming_feature_lookahead",
    }
    assert {field.name for field in fields(ResolvedConfig)} == derived | set(HANDED_ON) | set(OF_GRAPHS)


@pytest.mark.parametrize(
    ("mode", "streaming", "offline"),
    [("mixed", True, True), ("streaming", True, False), ("offline", False, True)],
)
def test_service_modes(mode: str, streaming: bool, offline: bool) -> None:
    resolved = resolve(EngineConfig(ckpt_dir="x", service_mode=mode))
    assert (resolved.streaming, resolved.offline) == (streaming, offline)


@pytest.fixture
def capturing_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CAPTURE_BACKENDS, "cpu", ReplayCapture)


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_settings_of_graphs_are_handed_on_where_there_are_any(name: str, capturing_cpu: None) -> None:
    value = OF_GRAPHS[name]
    assert getattr(resolve(EngineConfig(ckpt_dir="x", device="cpu")), name) == getattr(EngineConfig(), name) != value
    assert getattr(resolve(EngineConfig(ckpt_dir="x", device="cpu", **{name: value})), name) == value


@pytest.mark.parametrize("name", [name for name in OF_GRAPHS if not name.startswith("use_")])
def test_on_a_cpu_settings_of_graphs_are_refused(name: str) -> None:
    value, default = OF_GRAPHS[name], getattr(EngineConfig(), name)
    with pytest.raises(ConfigError) as caught:
        resolve(EngineConfig(ckpt_dir="x", device="cpu", **{name: value}))
    message = f"{name} is {value!r}, but on 'cpu' nothing is captured as a graph; leave it {default!r}"
    assert str(caught.value) == message
    resolve(EngineConfig(ckpt_dir="x", device="cpu", **{name: default}))


@pytest.mark.parametrize("switched_on", [True, False])
def test_on_a_cpu_there_are_no_graphs(switched_on: bool) -> None:
    config = EngineConfig(ckpt_dir="x", device="cpu", use_cuda_graphs=switched_on, use_offline_cuda_graphs=switched_on)
    resolved = resolve(config)
    assert (resolved.use_cuda_graphs, resolved.use_offline_cuda_graphs) == (False, False)


def test_without_graphs_there_are_no_offline_ones(capturing_cpu: None) -> None:
    assert not resolve(EngineConfig(ckpt_dir="x", device="cpu", use_cuda_graphs=False)).use_offline_cuda_graphs


def test_rows_are_packed_by_themselves_on_cpu_only() -> None:
    def policy(**options: Any) -> str:
        return resolve(EngineConfig(ckpt_dir="x", enable_sequence_packing=None, **options)).partition_policy

    assert policy(device="cpu") == "packing"
    assert policy(device="cpu", service_mode="offline") == "packing"
    assert policy(device="cpu", service_mode="streaming") == "frames"
    assert policy(device="cpu", partition_policy="count") == "count"


def test_packed_rows_are_cut_by_packing() -> None:
    assert resolve(EngineConfig(ckpt_dir="x", enable_sequence_packing=True)).partition_policy == "packing"


def test_recordings_in_windows_may_last_hours() -> None:
    assert resolve(EngineConfig(ckpt_dir="x", long_form=True)).max_audio_seconds == 14_400.0
    assert resolve(EngineConfig(ckpt_dir="x", long_form=True, max_audio_seconds=60)).max_audio_seconds == 60


def test_paths_names_and_widths() -> None:
    config = EngineConfig(
        ckpt_dir="x",
        unit_table="units/own.txt",
        sentencepiece_model="units/bpe.model",
        streaming_graph_batch_ladder=[4, 8],
        streaming_graph_pad_batch=True,
    )
    resolved = resolve(config)
    assert resolved.unit_table == Path("units/own.txt")
    assert resolved.sentencepiece_model == Path("units/bpe.model")
    assert (resolved.batch_ladder, resolved.pad_batch) == ((4, 8), True)
    assert resolve(EngineConfig(ckpt_dir="x", use_paged_cache=False)).streaming_runtime == "dense"


@pytest.mark.parametrize(
    ("values", "method", "options"),
    [
        ({}, "ctc_greedy", {}),
        ({"decode_options": {"beam_size": 4}}, "ctc_greedy", {"beam_size": 4}),
        ({"ctc_decoder_config": {"beam_size": 4}}, "ctc_prefix_beam", {"beam_size": 4}),
        ({"ctc_decoder_config": {}}, "ctc_prefix_beam", {}),
        (
            {"ctc_decoder_config": {"beam_size": 4}, "decode_method": "attention_rescoring"},
            "attention_rescoring",
            {"beam_size": 4},
        ),
        ({"decode_method": "attention_rescoring"}, "attention_rescoring", {}),
    ],
)
def test_options_of_the_ctc_decoder_choose_the_beam_search_where_no_method_is_named(
    values: dict[str, Any], method: str, options: dict[str, Any]
) -> None:
    resolved = resolve(EngineConfig(ckpt_dir="x", **values))
    assert (resolved.decode_method, resolved.decode_options) == (method, options)


def test_the_scale_that_all_checkpoints_of_the_kind_have_is_not_explicit() -> None:
    assert resolve(EngineConfig(ckpt_dir="x", audio_scale=32768)).audio_scale is None


def test_resolved_options_cannot_be_written_to() -> None:
    config = EngineConfig(ckpt_dir="x", decode_options={"beam": 10})
    options = cast(MutableMapping[str, Any], resolve(config).decode_options)
    with pytest.raises(TypeError):
        options["beam"] = 20
    cast(MutableMapping[str, Any], config.decode_options)["beam"] = 30
    assert options == {"beam": 10}


def test_no_checkpoint_is_an_error() -> None:
    with pytest.raises(ConfigError, match="ckpt_dir is empty"):
        resolve(EngineConfig())


@pytest.mark.parametrize("device", ["tpu", "gpu", "mps", "cuda:999", ""])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="device"):
        resolve(EngineConfig(ckpt_dir="x", device=device))


@pytest.mark.parametrize("native", [True, False])
def test_auto_dtype_on_a_processor(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    monkeypatch.setattr("oasr_backend.config.machine.multiplies_bfloat16", lambda: native)
    resolved = resolve(EngineConfig(ckpt_dir="x", device="cpu"))
    assert resolved.dtype is (torch.bfloat16 if native else torch.float32)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_an_explicit_dtype_is_kept_where_it_makes_sense(dtype: str | torch.dtype) -> None:
    assert resolve(EngineConfig(ckpt_dir="x", device="cpu", dtype=dtype)).dtype is torch.bfloat16


@pytest.mark.parametrize("dtype", ["float16", torch.float16])
def test_half_precision_on_a_processor_is_refused(dtype: str | torch.dtype) -> None:
    with pytest.raises(ConfigError, match="float16"):
        resolve(EngineConfig(ckpt_dir="x", device="cpu", dtype=dtype))


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
