"""A value that is impossible in itself is named at once."""

from typing import Any

import pytest
import torch

from oasr_backend.config import EngineConfig
from oasr_backend.config.bounds import BOUNDS
from oasr_backend.config.kinds import is_allowed
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from tests.config.values import KINDS, NAMES, impossible


@pytest.mark.parametrize("name", NAMES)
def test_no_field_takes_a_value_of_another_kind(name: str) -> None:
    values = impossible(name)
    assert len(values) >= 5
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{name} is "):
            EngineConfig(**{name: value})


@pytest.mark.parametrize("annotation", [set, list[int], tuple[str, ...], int | bytes])
def test_an_annotation_that_nothing_checks_is_an_error(annotation: Any) -> None:
    for value in (set(), [8], ("8",), 8):
        with pytest.raises(TypeError, match="has no rule"):
            is_allowed(annotation, value)


NUMERIC = [name for name in NAMES if int in KINDS[name] or float in KINDS[name]]


@pytest.mark.parametrize("name", NUMERIC)
def test_every_number_has_a_least_value(name: str) -> None:
    if name == "partial_decode_interval":
        assert EngineConfig(partial_decode_interval=-(2**40)).partial_decode_interval < 0
        return
    with pytest.raises(ConfigError, match=rf"^{name} is -1099511627776; (it must be|use)"):
        EngineConfig(**{name: -(2**40)})


def test_every_bound_is_of_a_field() -> None:
    assert set(BOUNDS) | {"num_left_chunks", "partial_decode_interval"} == set(NUMERIC)


INFINITY = float("inf")


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("chunk_size", [0], [1, 512]),
        ("num_left_chunks", [-2], [-1, 0]),
        ("num_threads", [0], [None, 1]),
        ("max_batch_size", [0], [1]),
        ("max_batch_frames", [0], [None, 1]),
        ("block_size_frames", [0], [1]),
        ("max_blocks_per_seq", [0], [1]),
        ("max_num_blocks", [0], [None, 32]),
        ("length_window_factor", [0], [1]),
        ("max_packed_frames", [0], [1]),
        ("cache_memory_share", [0, 1.01], [0.01, 1]),
        ("gpu_memory_utilization", [0, 1.01], [0.01, 1]),
        ("length_bucket_ratio", [-0.01, 1.01], [0, 1]),
        ("max_offline_pad_ratio", [-1, 0.5, 0.99], [0, 1, INFINITY]),
        ("max_wait_time", [-0.1], [0, INFINITY]),
        ("max_audio_seconds", [-1], [None, 0, INFINITY]),
        ("max_pinned_audio_seconds", [-1], [0]),
        ("max_pinned_audio_total_seconds", [-1], [0]),
        ("audio_scale", [0, -1, INFINITY], [1.0, 32768]),
        ("long_form_window_seconds", [0.9, INFINITY], [2.1]),
        ("long_form_overlap_seconds", [-0.1], [0, 14.9]),
        ("rescoring_ctc_weight", [-0.1], [None, 0, 0.5, 2]),
        ("rescoring_reverse_weight", [-0.1, 1.1], [None, 0, 0.3, 1]),
        ("endpoint_silence_ms", [39.9, 0, 3_600_001, INFINITY], [40, 3_600_000]),
        ("endpoint_start_ms", [39.9, 0, 3_600_001, INFINITY], [40, 3_600_000]),
        ("endpoint_max_ms", [39.9, 0, 3_600_001, INFINITY], [40, 3_600_000]),
        ("decode_steps_per_tick", [0], [32]),
        ("max_tick_ms", [-1], [25]),
        ("max_decode_slots", [0], [None]),
        ("decode_admit_window_ms", [-1], [0]),
        ("decode_kv_budget_gib", [-1], [None]),
        ("max_new_tokens", [0], [448]),
        ("transducer_max_sym_per_frame", [0], [10]),
        ("max_staging_elems", [-1], [256 << 20]),
        ("streaming_graph_cache_growth", [0.99], [1.5]),
        ("streaming_graph_max_shapes", [0], [512]),
        ("offline_graph_frame_granularity", [0], [64]),
        ("offline_graph_max_frames", [0], [4096]),
        ("offline_graph_max_captures", [0], [64]),
        ("partial_decode_interval", [], [-1, 0, 1, 7]),
    ],
)
def test_where_a_number_becomes_impossible(name: str, wrong: list[Any], right: list[Any]) -> None:
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"^{name} is {value}; (it must be|use)"):
            EngineConfig(**{name: value})
    for value in right:
        assert getattr(EngineConfig(**{name: value}), name) == value


@pytest.mark.parametrize("name", [name for name, kinds in KINDS.items() if str in kinds and type(None) in kinds])
def test_a_name_that_may_be_left_out_is_not_left_empty(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is empty"):
        EngineConfig(**{name: ""})


@pytest.mark.parametrize("name", [name for name, kinds in KINDS.items() if tuple[int, ...] in kinds])
@pytest.mark.parametrize("sizes", [(), (0,), (-1, 4), (8, 4), (4, 4), (4, 33), [], [16, 8], 0, 33])
def test_batch_sizes_ascend_within_the_largest(name: str, sizes: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .*ascending numbers from 1 to max_batch_size, 32"):
        EngineConfig(**{name: sizes})


@pytest.mark.parametrize(
    "name", ["preferred_batch_size", "streaming_graph_batch_ladder", "offline_graph_batch_buckets"]
)
@pytest.mark.parametrize(("sizes", "kept"), [(8, (8,)), ([8], (8,)), ([8, 16], (8, 16)), ((1, 32), (1, 32))])
def test_batch_sizes_are_kept_as_a_tuple(name: str, sizes: Any, kept: tuple[int, ...]) -> None:
    assert getattr(EngineConfig(**{name: sizes}), name) == kept


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [
        ("service_mode", "both", "mixed, streaming, offline"),
        ("service_mode", "", "mixed, streaming, offline"),
        ("dtype", "int8", "auto, float32, bfloat16, float16"),
        ("dtype", "torch.float16", "auto, float32, bfloat16, float16"),
        ("dtype", torch.float64, "torch.float32, torch.bfloat16, torch.float16"),
        ("dtype", torch.int8, "torch.float32, torch.bfloat16, torch.float16"),
        ("decoder_type", "ctc_beam", "ctc_cuda, ctc_wfst"),
        ("endpoint_history", "forget", "keep, reset"),
    ],
)
def test_a_value_outside_a_choice_is_refused_with_the_choice(name: str, value: Any, choices: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is {value!r}; choose one of {choices}$"):
        EngineConfig(**{name: value})


def test_what_is_kept_is_not_the_callers() -> None:
    options = {"beam": 10}
    config = EngineConfig(decode_options=options)
    options["beam"] = 20
    assert config.decode_options == {"beam": 10}


def test_equal_configurations_have_one_hash() -> None:
    features = FeatureSpec(num_mel_bins=40)
    first, second = (EngineConfig(feature_config=features, decode_options={"beam": 10}) for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    assert first != EngineConfig(feature_config=features, decode_options={"beam": 20})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunks": 16, "beam": 10}, r"^unknown setting beam=10, chunks=16 \(did you mean chunk_size\?\); "),
        ({"max_batchsize": 4}, r"max_batchsize=4 \(did you mean max_batch_size\?\)"),
        ({"xyzzy": None}, r"^unknown setting xyzzy=None; docs/configuration\.md lists"),
    ],
)
def test_a_mapping_with_an_unknown_name_is_refused_with_the_nearest(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EngineConfig.from_mapping({**values, "ckpt_dir": "x"})


def test_a_mapping_gives_the_fields_it_names() -> None:
    assert EngineConfig.from_mapping({"ckpt_dir": "x", "chunk_size": 8}) == EngineConfig(ckpt_dir="x", chunk_size=8)
