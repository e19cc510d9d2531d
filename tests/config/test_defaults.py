"""Every field that the engine is to have, with its default."""

from dataclasses import MISSING, fields

import pytest

from oasr_backend.config import EngineConfig
from oasr_backend.config.fields import GROUPS

DEFAULTS = {
    # model and runtime
    "ckpt_dir": "",
    "checkpoint_name": None,
    "architecture": None,
    "device": "auto",
    "dtype": "auto",
    "num_threads": None,
    "quantization": None,
    "audio_scale": 32768.0,
    "service_mode": "mixed",
    "use_cuda_graphs": True,
    "streaming_graph_cache_growth": 1.5,
    "streaming_graph_batch_ladder": None,
    "streaming_graph_pad_batch": None,
    "streaming_graph_max_shapes": 512,
    "use_offline_cuda_graphs": True,
    "offline_graph_batch_buckets": None,
    "offline_graph_frame_granularity": 64,
    "offline_graph_max_frames": 4096,
    "offline_graph_max_captures": 64,
    "use_feature_cuda_graphs": False,
    "use_ctc_cuda_graphs": False,
    "use_transducer_cuda_graphs": True,
    "feature_graph_batch_buckets": None,
    "max_staging_elems": 256 * 1024 * 1024,
    "tuning": "off",
    "gc_freeze": True,
    "nvtx": False,
    # offline clips
    "max_audio_seconds": None,
    "long_form": False,
    "long_form_window_seconds": 30.0,
    "long_form_overlap_seconds": 1.0,
    "overlap_admit": False,
    "offline_collate_prefetch": True,
    "offline_decode_overlap": True,
    "max_pinned_audio_seconds": 300.0,
    "max_pinned_audio_total_seconds": 3600.0,
    # decoding
    "decode_method": None,
    "decode_options": {},
    "decode_steps_per_tick": 32,
    "max_tick_ms": 25.0,
    "max_decode_slots": None,
    "decode_admit_window_ms": 0.0,
    "decode_kv_budget_gib": None,
    "max_new_tokens": 448,
    "llm_prompt": None,
    "transducer_max_sym_per_frame": 10,
    "rescoring_ctc_weight": None,
    "rescoring_reverse_weight": None,
    "decoder_type": "ctc_cuda",
    "ctc_decoder_config": None,
    "wfst_decoder_config": None,
    "fst_path": None,
    "sentencepiece_model": None,
    "unit_table": None,
    # streaming
    "chunk_size": 16,
    "num_left_chunks": -1,
    "finalize_silence_pad": True,
    "recycle_streaming_history": False,
    "streaming_cohort_admit": True,
    "streaming_feature_lookahead": True,
    "partial_decode_interval": 1,
    "overlap_partial_readback": False,
    "vad": None,
    # endpoints
    "endpointing": False,
    "endpoint_silence_ms": 1000.0,
    "endpoint_start_ms": 5000.0,
    "endpoint_max_ms": 20000.0,
    "endpoint_history": "reset",
    # batching
    "max_batch_size": 32,
    "max_batch_frames": None,
    "preferred_batch_size": None,
    "length_bucket_ratio": 0.0,
    "max_offline_pad_ratio": 4.0,
    "max_wait_time": 0.2,
    "schedule_policy": "window",
    "length_window_factor": 4,
    "partition_policy": None,
    "enable_sequence_packing": False,
    "max_packed_frames": 8192,
    # paged cache
    "max_num_blocks": None,
    "gpu_memory_utilization": 0.90,
    "cache_memory_share": 0.25,
    "block_size_frames": 16,
    "max_blocks_per_seq": 512,
    "use_paged_cache": True,
    # features
    "feature_config": None,
}


def test_every_field_is_there_and_no_other() -> None:
    assert {field.name for field in fields(EngineConfig)} == set(DEFAULTS)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_defaults(name: str) -> None:
    assert getattr(EngineConfig(), name) == DEFAULTS[name]
    assert type(getattr(EngineConfig(), name)) is type(DEFAULTS[name])


def test_each_field_belongs_to_one_group_in_the_order_of_the_documentation() -> None:
    grouped = [field.name for group in GROUPS for field in fields(group)]
    assert grouped == [field.name for field in fields(EngineConfig)]
    assert len(grouped) == len(set(grouped))


def test_no_two_configurations_share_a_mapping() -> None:
    assert EngineConfig().decode_options is not EngineConfig().decode_options
    (of_options,) = (field for field in fields(EngineConfig) if field.name == "decode_options")
    assert of_options.default is MISSING
