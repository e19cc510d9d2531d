"""Configuration of `audio_decode`, which has no engine and must not load one."""

from collections.abc import Mapping

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.triton.overrides import field_types, layered


def load_decode_settings(parameters: Mapping[str, str], environment: Mapping[str, str]) -> AudioLimits:
    """Limits of audio files; OASR_DECODE_<NAME> is this model's own scope. Raises ConfigError."""
    known = field_types(AudioLimits)
    # Names of the engines' settings are theirs to check.
    general = {key: value for key, value in environment.items() if _is_ours(key, known)}
    return AudioLimits(**layered(parameters, general, "decode", known))


def _is_ours(key: str, known: Mapping[str, object]) -> bool:
    name = key.removeprefix("OASR_").lower()
    return name in known or name.startswith("decode_")
