"""Two values that cannot both be honoured are refused, with both names."""

from typing import Any

import pytest

from oasr_backend.config import EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec

# Every name in a contradiction must be in its message; without any one of them there is none.
CONTRADICTIONS: list[dict[str, Any]] = [
    {"enable_sequence_packing": True, "service_mode": "streaming"},
    {"overlap_admit": True, "service_mode": "streaming"},
    {"long_form": True, "service_mode": "streaming"},
    {"enable_sequence_packing": True, "partition_policy": "frames"},
    {"enable_sequence_packing": True, "partition_policy": "count"},
    {"max_num_blocks": 31},
    {"max_num_blocks": 64, "max_batch_size": 65},
    {"max_num_blocks": 64, "use_paged_cache": False},
    {"streaming_graph_pad_batch": True, "use_paged_cache": False},
    {"streaming_graph_batch_ladder": (8,), "use_paged_cache": False},
    {"streaming_graph_batch_ladder": (8,), "streaming_graph_pad_batch": False},
    {"streaming_graph_cache_growth": 2.0, "use_paged_cache": False},
    {"streaming_graph_max_shapes": 64, "use_paged_cache": False},
    {"streaming_graph_max_shapes": 64, "use_cuda_graphs": False},
    {"offline_graph_max_captures": 8, "use_cuda_graphs": False},
    {"offline_graph_max_captures": 8, "use_offline_cuda_graphs": False},
    {"offline_graph_max_frames": 100, "offline_graph_frame_granularity": 128},
    {"audio_scale": 1.0, "feature_config": FeatureSpec()},
    {"long_form_window_seconds": 10.0, "long_form_overlap_seconds": 5.0},
    {"long_form_window_seconds": 2.0},
    {"long_form_overlap_seconds": 15.0},
    {"long_form": True, "max_audio_seconds": 30.0},
    {"length_bucket_ratio": 0.5, "schedule_policy": "fcfs"},
    {"max_offline_pad_ratio": 2.0, "schedule_policy": "fcfs"},
    {"ctc_decoder_config": {"beam_size": 10}, "decode_options": {"beam_size": 10}},
    {"ctc_decoder_config": {}, "decode_options": {"beam_size": 10}},
    {"endpointing": True, "service_mode": "offline"},
    {"preferred_batch_size": (8, 16), "max_batch_size": 8},
    {"streaming_graph_batch_ladder": (8, 16), "max_batch_size": 8},
]


@pytest.mark.parametrize("values", CONTRADICTIONS, ids=str)
def test_a_contradiction_names_all_that_takes_part(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**values)
    assert all(name in str(caught.value) for name in values)
    for name in values:
        EngineConfig(**{other: value for other, value in values.items() if other != name})


@pytest.mark.parametrize(
    "values",
    [
        {"enable_sequence_packing": True, "service_mode": "offline", "partition_policy": "packing"},
        {"partition_policy": "packing"},
        {"long_form": True, "service_mode": "offline", "max_audio_seconds": 31.0},
        {"max_num_blocks": 32},
        {"max_num_blocks": 1, "service_mode": "offline"},
        {"max_num_blocks": 1, "max_batch_size": 1},
        {"streaming_graph_batch_ladder": (8,), "streaming_graph_pad_batch": True},
        {"streaming_graph_pad_batch": False, "use_paged_cache": False},
        {"streaming_graph_cache_growth": 2.0, "use_cuda_graphs": False},
        {"offline_graph_max_frames": 128, "offline_graph_frame_granularity": 128},
        {"audio_scale": 1.0, "feature_config": FeatureSpec(audio_scale=1.0)},
        {"feature_config": FeatureSpec(audio_scale=1.0)},
        {"long_form_window_seconds": 2.1},
        {"long_form_overlap_seconds": 0.0, "long_form_window_seconds": 1.0},
        {"max_audio_seconds": 5.0},
        {"max_offline_pad_ratio": 0.0, "schedule_policy": "fcfs"},
        {"length_bucket_ratio": 0.5, "max_offline_pad_ratio": 2.0, "schedule_policy": "bucket"},
        {"length_bucket_ratio": 0.5, "schedule_policy": "my_own"},
        {"ctc_decoder_config": {"beam_size": 10}, "decode_method": "ctc_prefix_beam"},
        {"ctc_decoder_config": {"beam_size": 10}, "decode_options": {}},
        {"rescoring_ctc_weight": 0.3, "rescoring_reverse_weight": 0.3},
        {"endpointing": True, "service_mode": "streaming"},
        {"endpoint_silence_ms": 500.0, "endpointing": False},
        {"recycle_streaming_history": True, "num_left_chunks": 4},
        {"recycle_streaming_history": True, "use_paged_cache": False},
    ],
    ids=str,
)
def test_what_goes_together_is_left_alone(values: dict[str, Any]) -> None:
    EngineConfig(**values)
