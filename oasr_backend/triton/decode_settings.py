"""Configuration of `audio_decode`, which has no engine and must not load one."""

from collections.abc import Mapping
from typing import Any

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.triton.overrides import field_types, layered
from oasr_backend.utils.log_lines import LogSettings


def load_decode_settings(parameters: Mapping[str, str], environment: Mapping[str, str]) -> AudioLimits:
    """Limits of audio files; OASR_DECODE_<NAME> is this model's own scope. Raises ConfigError."""
    return AudioLimits(**_settings_of(AudioLimits, parameters, environment))


def load_decode_log_settings(parameters: Mapping[str, str], environment: Mapping[str, str]) -> LogSettings:
    """What this model logs, and how. Raises ConfigError."""
    return LogSettings(**_settings_of(LogSettings, parameters, environment))


def _settings_of(owner: type, parameters: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, Any]:
    known = {**field_types(AudioLimits), **field_types(LogSettings)}
    # Names of the engines' settings are theirs to check.
    general = {key: value for key, value in environment.items() if _is_ours(key, known)}
    values = layered(parameters, general, "decode", known)
    return {name: value for name, value in values.items() if name in field_types(owner)}


def _is_ours(key: str, known: Mapping[str, object]) -> bool:
    name = key.removeprefix("OASR_").lower()
    return name in known or name.startswith("decode_")
