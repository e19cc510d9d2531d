"""Where a setting comes from, and what is refused."""

import pytest

from oasr_backend.errors import ConfigError
from oasr_backend.triton.decode_settings import load_decode_settings
from oasr_backend.triton.settings import load_settings

PBTXT = {"service_mode": "streaming", "max_sequences": "128", "checkpoint": "/model"}


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
        ({"OASR_LOG_LEVEL": "LOUD"}, "log_level"),
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
