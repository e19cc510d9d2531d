"""Where a setting comes from, and what is refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import torch

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.config import EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.triton.decode_settings import load_decode_log_settings, load_decode_settings
from oasr_backend.triton.overrides import ENGINE_DECODE_NAMES, SCOPES, field_types, layered
from oasr_backend.triton.settings import AdapterSettings, load_settings, version_settings
from oasr_backend.utils.log_lines import LogSettings
from tests.config.values import KINDS, NAMES

PBTXT = {"service_mode": "streaming", "max_sequences": "128", "checkpoint": "/model"}
OFFLINE = {"service_mode": "offline", "checkpoint": "/model"}


def test_the_environment_wins_over_the_configuration_and_the_own_scope_over_all() -> None:
    environment = {"OASR_CHUNK_SIZE": "8", "OASR_STREAMING_CHUNK_SIZE": "4", "OASR_OFFLINE_CHUNK_SIZE": "2"}
    assert load_settings({**PBTXT, "chunk_size": "12"}, {}, "streaming").engine.chunk_size == 12
    assert load_settings(PBTXT, {"OASR_CHUNK_SIZE": "8"}, "streaming").engine.chunk_size == 8
    assert load_settings(PBTXT, environment, "streaming").engine.chunk_size == 4


def test_a_streaming_engine_has_a_slot_for_every_sequence() -> None:
    settings = load_settings(PBTXT, {"OASR_MAX_SEQUENCES": "5"}, "streaming")
    assert settings.adapter.max_sequences == settings.engine.max_batch_size == 5


def test_values_become_the_types_of_their_fields() -> None:
    settings = load_settings(
        PBTXT,
        {"OASR_FINALIZE_SILENCE_PAD": "no", "OASR_MAX_NUM_BLOCKS": "none", "OASR_CACHE_MEMORY_SHARE": "0.5"},
        "streaming",
    )
    assert settings.engine.finalize_silence_pad is False
    assert settings.engine.max_num_blocks is None
    assert settings.engine.cache_memory_share == 0.5


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"OASR_CHUNKSIZE": "8"}, "unknown setting 'chunksize'"),
        ({"OASR_STREAMING_NOTHING": "8"}, "unknown setting 'nothing'"),
        ({"OASR_CHUNK_SIZE": "eight"}, "chunk_size is 'eight'"),
        ({"OASR_RECYCLE_STREAMING_HISTORY": "maybe"}, "true or false"),
        ({"OASR_SERVICE_MODE": "mixed"}, "fixed by config.pbtxt"),
        ({"OASR_SENDER_THREADS": "0"}, "sender_threads is 0"),
        ({"OASR_MAX_QUEUED_SECONDS": "0"}, "max_queued_seconds is 0.0; it must be at least 1"),
        ({"OASR_MAX_TOTAL_QUEUED_SECONDS": "inf"}, "max_total_queued_seconds is inf"),
        ({"OASR_MAX_QUEUED_CLIP_SECONDS": "nan"}, "max_queued_clip_seconds is nan"),
        ({"OASR_LOG_LEVEL": "LOUD"}, "log_level"),
        ({"OASR_LOG_FORMAT": "xml"}, "log_format"),
        ({"OASR_LOG_TEXT": "maybe"}, "true or false"),
        ({"OASR_TRACE_SHARE": "1.5"}, "trace_share"),
        ({"OASR_STREAMING_MAX_BATCH_SIZE": "4"}, "max_sequences"),
        ({"OASR_CHECKPOINT": ""}, "no checkpoint"),
    ],
)
def test_what_cannot_be_meant_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_settings(PBTXT, environment, "streaming")


def test_each_model_passes_over_the_settings_of_the_others() -> None:
    environment = {
        "OASR_MAX_AUDIO_MIB": "1",
        "OASR_CHUNK_SIZE": "8",
        "OASR_TRITONSERVER": "/bin/true",
        "OASR_OFFLINE_MAX_BATCH_SIZE": "4",
        "OASR_DECODE_MAX_AUDIO_SECONDS": "5",
        "PATH": "/bin",
    }
    assert load_settings(PBTXT, environment, "streaming").engine.max_batch_size == 128
    limits = load_decode_settings({}, environment)
    assert (limits.max_audio_mib, limits.max_audio_seconds) == (1, 5.0)


def test_secrets_and_certificates_of_clients_are_no_settings() -> None:
    environment = {"OASR_TOKEN": "x", "OASR_ADMIN_TOKEN": "x", "OASR_TLS": "1", "OASR_TLS_CA": "x", "OASR_TLS_KEY": "x"}
    assert load_settings(PBTXT, environment, "streaming") == load_settings(PBTXT, {}, "streaming")
    with pytest.raises(ConfigError, match="unknown setting 'tls_colour'"):
        load_settings(PBTXT, {"OASR_TLS_COLOUR": "red"}, "streaming")


def test_a_version_has_settings_of_its_own_that_win(tmp_path: Path) -> None:
    assert version_settings(tmp_path) == {}
    (tmp_path / "settings.json").write_text(
        '{"checkpoint": "/new", "max_sequences": 3, "recycle_streaming_history": false}'
    )
    environment = {"OASR_CHECKPOINT": "/old", "OASR_STREAMING_MAX_SEQUENCES": "9"}
    settings = load_settings(PBTXT, environment, "streaming", version_settings(tmp_path))
    assert settings.adapter.checkpoint == "/new"
    assert settings.adapter.max_sequences == 3
    assert settings.engine.recycle_streaming_history is False
    assert load_settings(PBTXT, environment, "streaming").adapter.max_sequences == 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "holds no JSON object"),
        ('{"checkpiont": "/x"}', "unknown setting 'checkpiont' in settings.json"),
        ('{"service_mode": "offline"}', "service_mode is fixed by config.pbtxt; remove it from settings.json"),
    ],
)
def test_settings_of_a_version_that_cannot_be_meant_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_settings(PBTXT, {}, "streaming", version_settings(tmp_path))


def test_windows_for_long_clips_are_off_where_there_can_be_none() -> None:
    served = {**OFFLINE, "long_form": "true"}
    limit = {"OASR_MAX_AUDIO_SECONDS": "20"}
    assert load_settings(served, {}, "offline").engine.long_form
    assert load_settings(served, {"OASR_MAX_AUDIO_SECONDS": "30.5"}, "offline").engine.long_form
    assert not load_settings(served, limit, "offline").engine.long_form
    assert load_settings(served, {**limit, "OASR_LONG_FORM_WINDOW_SECONDS": "10"}, "offline").engine.long_form
    # Who asks for both is told that they do not go together.
    for name in ("OASR_LONG_FORM", "OASR_OFFLINE_LONG_FORM"):
        with pytest.raises(ConfigError, match="no clip is longer than long_form_window_seconds 30"):
            load_settings(served, {**limit, name: "true"}, "offline")
    with pytest.raises(ConfigError, match="no clip is longer than"):
        load_settings(served, limit, "offline", {"long_form": "true"})


def test_an_unknown_setting_of_the_decoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown setting 'speed'"):
        load_decode_settings({}, {"OASR_DECODE_SPEED": "1"})


def test_features_are_given_as_json() -> None:
    text = '{"kind": "mfcc", "num_mel_bins": 40, "num_ceps": 20}'
    features = load_settings(PBTXT, {"OASR_FEATURE_CONFIG": text}, "streaming").engine.feature_config
    assert features is not None
    assert (features.kind, features.dim) == ("mfcc", 20)
    with pytest.raises(ConfigError, match="feature_config"):
        load_settings(PBTXT, {"OASR_FEATURE_CONFIG": '{"bins": 80}'}, "streaming")


# Three texts of each kind, and what they stand for.
TEXTS: dict[Any, tuple[tuple[str, Any], ...]] = {
    str: (("one", "one"), (" two ", "two"), ("three", "three")),
    int: (("1", 1), (" 2 ", 2), ("-3", -3)),
    float: (("0.5", 0.5), ("1e3", 1000.0), ("7", 7.0)),
    bool: (("true", True), ("no", False), ("1", True)),
    tuple[int, ...]: (("8,16", (8, 16)), ("[4, 8]", (4, 8)), (" 8 ", (8,))),
    Mapping[str, Any]: (('{"a": 1}', {"a": 1}), (' {"b": [2]}', {"b": [2]}), ("{}", {})),
    FeatureSpec: (
        ('{"kind": "mfcc"}', FeatureSpec(kind="mfcc")),
        ('{"num_mel_bins": 40}', FeatureSpec(num_mel_bins=40)),
        ("{}", FeatureSpec()),
    ),
    type(None): (("none", None), ("", None), ("None", None)),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scope", ["streaming", "offline"])
def test_every_setting_comes_from_the_strongest_source(name: str, scope: str) -> None:
    known = {name: field_types(EngineConfig)[name]}
    everybody, own = f"OASR_{name.upper()}", f"OASR_{scope.upper()}_{name.upper()}"
    other = f"OASR_{'OFFLINE' if scope == 'streaming' else 'STREAMING'}_{name.upper()}"
    for kind in KINDS[name]:
        if kind is torch.dtype:
            # As text by its name.
            continue
        (weak, first), (middle, second), (strong, third) = TEXTS[kind]
        assert layered({}, {}, scope, known) == {}
        assert layered({name: weak}, {}, scope, known) == {name: first}
        assert layered({name: weak}, {everybody: middle}, scope, known) == {name: second}
        assert layered({name: weak}, {everybody: middle, own: strong}, scope, known) == {name: third}
        assert layered({name: weak}, {own: strong, everybody: middle}, scope, known) == {name: third}
        assert layered({name: weak}, {other: strong}, scope, known) == {name: first}


def as_text(value: Any) -> str:
    if isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, FeatureSpec):
        return json.dumps(asdict(value))
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


CHANGED = {
    "ckpt_dir": "/elsewhere",
    "checkpoint_name": "avg_30.pt",
    "architecture": "transformer",
    "unit_table": "/units.txt",
    "device": "cpu",
    "dtype": "bfloat16",
    "feature_config": FeatureSpec(num_mel_bins=40, audio_scale=1.0),
    "audio_scale": 2.5,
    "max_batch_size": 16,
    "preferred_batch_size": (4, 8),
    "streaming_graph_batch_ladder": (2, 4, 8),
    "streaming_graph_pad_batch": True,
    "length_bucket_ratio": 0.5,
    "partition_policy": "count",
    "enable_sequence_packing": True,
    "max_audio_seconds": 30.5,
    "long_form": True,
    "decode_options": {"beam": 10, "weights": [0.5]},
    "quantization": {"scheme": "int8_w8a8", "ignore": "ctc.*"},
    "offline_decode_overlap": False,
    "use_cuda_graphs": False,
}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "service_mode"])
def test_a_field_survives_being_written_as_text(name: str) -> None:
    """Its default, and where there is one another value."""
    for value in (getattr(EngineConfig(), name), CHANGED.get(name)):
        if value is not None and value != "":
            engine = load_settings(OFFLINE, {f"OASR_{name.upper()}": as_text(value)}, "offline").engine
            assert getattr(engine, name) == value
            assert type(getattr(engine, name)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("preferred_batch_size", "8;16", "whole numbers like 8,16"),
        ("preferred_batch_size", "8,", "whole numbers like 8,16"),
        ("preferred_batch_size", "[8", "JSON list"),
        ("preferred_batch_size", "[8.5]", "must be whole numbers"),
        ("preferred_batch_size", "16,8", "ascending"),
        ("decode_options", "beam=10", "JSON object"),
        ("decode_options", "[10]", "JSON object"),
        ("decode_options", "", "JSON object"),
        ("decode_options", "{beam: 10}", "JSON object"),
        ("dtype", "int8", "choose one of"),
        ("dtype", "none", "choose one of"),
        ("quantization", "int4", "scheme must be one of int8_w8a8"),
        ("quantization", '{"ignore": "ctc.*"}', "for a scheme"),
        ("quantization", '{"scheme"', "JSON object"),
        ("max_wait_time", "nan", "a number"),
        ("max_decode_slots", "8", "no autoregressive"),
    ],
)
def test_texts_that_mean_nothing_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*{message}"):
        load_settings(OFFLINE, {f"OASR_{name.upper()}": text}, "offline")


def test_no_name_can_be_read_in_two_ways() -> None:
    """A whole name goes before a scope that it begins with, so what follows the scope must be no name itself."""
    names = {field.name for owner in (EngineConfig, AdapterSettings, AudioLimits) for field in fields(owner)}
    begun = {name: name.partition("_")[2] for name in names if name.partition("_")[0] in SCOPES}
    assert "streaming_cohort_admit" in begun and "decode_method" in begun
    assert not set(begun.values()) & names


def test_a_name_that_begins_like_a_scope_is_every_models() -> None:
    environment = {"OASR_STREAMING_COHORT_ADMIT": "false", "OASR_OFFLINE_DECODE_OVERLAP": "false"}
    for parameters, scope in ((PBTXT, "streaming"), (OFFLINE, "offline")):
        engine = load_settings(parameters, environment, scope).engine
        assert (engine.streaming_cohort_admit, engine.offline_decode_overlap) == (False, False)
    scoped = {**environment, "OASR_STREAMING_STREAMING_COHORT_ADMIT": "true"}
    assert load_settings(PBTXT, scoped, "streaming").engine.streaming_cohort_admit
    assert not load_settings(OFFLINE, scoped, "offline").engine.streaming_cohort_admit


def test_audio_decoding_knows_which_names_are_the_engines() -> None:
    assert {name for name in NAMES if name.startswith("decode_")} == ENGINE_DECODE_NAMES
    environment = {"OASR_DECODE_METHOD": "my_own", "OASR_DECODE_MAX_AUDIO_MIB": "1"}
    assert load_decode_settings({}, environment).max_audio_mib == 1
    assert load_settings(PBTXT, environment, "streaming").engine.decode_method == "my_own"


OFFLINE_ONLY = {
    "enable_sequence_packing": "true",
    "overlap_admit": "true",
    "long_form": "true",
    "preferred_batch_size": "8,16",
}


@pytest.mark.parametrize("name", OFFLINE_ONLY)
def test_what_all_models_are_told_of_clips_concerns_the_offline_one(name: str) -> None:
    environment = {f"OASR_{name.upper()}": OFFLINE_ONLY[name]}
    default = getattr(EngineConfig(), name)
    assert getattr(load_settings(OFFLINE, environment, "offline").engine, name) != default
    assert getattr(load_settings(PBTXT, environment, "streaming").engine, name) == default


@pytest.mark.parametrize("name", OFFLINE_ONLY)
def test_the_streaming_model_itself_is_told_nothing_of_clips(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is .*leave it out|^{name} is .*OASR_OFFLINE"):
        load_settings(PBTXT, {f"OASR_STREAMING_{name.upper()}": OFFLINE_ONLY[name]}, "streaming")
    with pytest.raises(ConfigError, match=f"^{name} is "):
        load_settings({**PBTXT, name: OFFLINE_ONLY[name]}, {}, "streaming")


@pytest.mark.parametrize("interval", ["0", "2"])
def test_every_chunk_of_a_stream_is_answered(interval: str) -> None:
    environment = {"OASR_PARTIAL_DECODE_INTERVAL": interval}
    with pytest.raises(ConfigError, match=f"partial_decode_interval is {interval} but .*every chunk"):
        load_settings(PBTXT, environment, "streaming")
    assert load_settings(OFFLINE, environment, "offline").engine.partial_decode_interval == int(interval)
    assert load_settings(PBTXT, {"OASR_PARTIAL_DECODE_INTERVAL": "1"}, "streaming").engine.partial_decode_interval == 1


WRITTEN = (
    *("none", "None", " NONE ", "", " "),
    *("0", "-1", "1", " 7200 ", "7_200", "7,200", "1e3", "0.5", "inf", "-inf", "nan", "x", "[1]"),
    *("true", "False", "on", "OFF", "yes", "2"),
    *("info", "INFO", " INFO ", "DEBUG", "text", "json", "JSON"),
)


def understood(load: Callable[[], Any], name: str) -> Any:
    """The value of a setting as it is kept, or "refused"."""
    try:
        return repr(getattr(load(), name))
    except ConfigError:
        return "refused"


def test_what_several_models_read_is_of_one_type() -> None:
    engine = {**field_types(EngineConfig), **field_types(AdapterSettings)}
    decode = {**field_types(AudioLimits), **field_types(LogSettings)}
    shared = engine.keys() & decode.keys()
    assert shared == {"max_audio_seconds", "log_level", "log_format", "log_text"}
    assert {name: engine[name] for name in shared} == {name: decode[name] for name in shared}


@pytest.mark.parametrize("text", WRITTEN)
@pytest.mark.parametrize("name", ["max_audio_seconds", "log_level", "log_format", "log_text"])
def test_what_several_models_read_is_understood_alike(name: str, text: str) -> None:
    said = {f"OASR_{name.upper()}": text}
    of_files = {"max_audio_seconds": load_decode_settings}.get(name, load_decode_log_settings)
    part = "engine" if name == "max_audio_seconds" else "adapter"
    meanings = {
        understood(lambda: of_files({}, said), name),
        understood(lambda: of_files({name: text}, {}), name),
        *(
            understood(lambda own=own, scope=scope: getattr(load_settings(own, said, scope), part), name)
            for own, scope in ((PBTXT, "streaming"), (OFFLINE, "offline"))
        ),
    }
    assert len(meanings) == 1, meanings


def test_every_model_takes_what_is_said_of_the_log() -> None:
    environment = {"OASR_LOG_FORMAT": "json", "OASR_LOG_LEVEL": "INFO", "OASR_DECODE_LOG_LEVEL": "DEBUG"}
    adapter = load_settings(PBTXT, environment, "streaming").adapter
    assert (adapter.log_format, adapter.log_level, adapter.log_text) == ("json", "INFO", False)
    decode = load_decode_log_settings({}, environment)
    assert (decode.log_format, decode.log_level, decode.log_text) == ("json", "DEBUG", False)
    assert load_decode_settings({}, environment) == AudioLimits()
    with pytest.raises(ConfigError, match="log_format"):
        load_decode_log_settings({}, {"OASR_DECODE_LOG_FORMAT": "xml"})
