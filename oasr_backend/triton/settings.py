"""Configuration of a model: environment over config.pbtxt over defaults."""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from oasr_backend.config import EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.triton.audio_bytes import AudioLimits

_PREFIX = "OASR_"
# Pinned by each model's config.pbtxt.
_NOT_OVERRIDABLE = frozenset({"service_mode"})
# Read by the launcher and the client, not by a model.
_FOREIGN = frozenset({"tritonserver", "server", "test"})


@dataclass(frozen=True)
class AdapterSettings:
    """Knobs of the Triton side."""

    checkpoint: str = ""
    """Checkpoint directory; the engine's ckpt_dir."""
    max_sequences: int = 128
    """Live streams; one more is refused at once."""
    max_queued_clips: int = 1024
    """Offline clips in the queue; more are refused at once."""
    idle_seconds: float = 60.0
    """A stream without requests for so long is freed; must be later than Triton's own expiry."""
    gather_ms: float = 20.0
    """The most that a step waits for requests that come together; never more than a quarter of what a step takes."""
    sender_threads: int = 4
    """Threads that send responses."""
    log_level: str = "WARNING"
    """Python logging level."""


@dataclass(frozen=True)
class ModelSettings:
    """All that a model is configured with."""

    engine: EngineConfig
    adapter: AdapterSettings


def load_settings(parameters: Mapping[str, str], environment: Mapping[str, str], scope: str) -> ModelSettings:
    """`parameters` of config.pbtxt, overridden by OASR_<NAME>, overridden by OASR_<SCOPE>_<NAME>.

    Raises ConfigError for a name that is none of ours and for a value that does not fit.
    """
    types_by_name = {**_field_types(EngineConfig), **_field_types(AdapterSettings)}
    values: dict[str, Any] = {}
    for source, given in (
        ("config.pbtxt", dict(parameters)),
        ("the environment", _from_environment(environment, scope)),
    ):
        for name, text in given.items():
            if name not in types_by_name:
                raise ConfigError(f"unknown setting {name!r} in {source}; known: {', '.join(sorted(types_by_name))}")
            if source != "config.pbtxt" and name in _NOT_OVERRIDABLE:
                raise ConfigError(f"{name} is fixed by config.pbtxt; remove {_PREFIX}{name.upper()}")
            values[name] = _convert(name, text, types_by_name[name])
    adapter = AdapterSettings(**{name: values.pop(name) for name in _field_types(AdapterSettings) if name in values})
    if not adapter.checkpoint and not values.get("ckpt_dir"):
        raise ConfigError(
            "no checkpoint is named; set OASR_CHECKPOINT to a WeNet directory, or start with `oasr serve --checkpoint`"
        )
    values["ckpt_dir"] = values.get("ckpt_dir") or adapter.checkpoint
    if values.get("service_mode") == "streaming":
        # Live streams never wait: a slot for each that may be open.
        values["max_batch_size"] = adapter.max_sequences
    return ModelSettings(EngineConfig.from_mapping(values), adapter)


def _from_environment(environment: Mapping[str, str], scope: str) -> dict[str, str]:
    general: dict[str, str] = {}
    scoped: dict[str, str] = {}
    scopes = ("streaming_", "offline_", "decode_")
    for key, value in environment.items():
        if not key.startswith(_PREFIX):
            continue
        name = key.removeprefix(_PREFIX).lower()
        if name.partition("_")[0] in _FOREIGN:
            continue
        if name.startswith(f"{scope}_"):
            scoped[name.removeprefix(f"{scope}_")] = value
        elif not name.startswith(scopes):
            general[name] = value
    return {**general, **scoped}


def _field_types(settings: type) -> dict[str, Any]:
    hints = typing.get_type_hints(settings)
    return {field.name: hints[field.name] for field in fields(settings)}


def _convert(name: str, text: str, kind: Any) -> Any:
    if isinstance(kind, types.UnionType):
        if text.strip().lower() in ("", "none", "auto"):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if kind is bool:
        lowered = text.strip().lower()
        if lowered in ("1", "true", "yes", "on"):
            return True
        if lowered in ("0", "false", "no", "off"):
            return False
        raise ConfigError(f"setting {name} is {text!r}; it must be true or false")
    try:
        return kind(text.strip())
    except ValueError as error:
        raise ConfigError(f"setting {name} is {text!r}; it must be of type {kind.__name__}") from error


def load_decode_settings(parameters: Mapping[str, str], environment: Mapping[str, str]) -> AudioLimits:
    """The same order of strength for `audio_decode`, which has no engine; OASR_DECODE_<NAME> is its own scope."""
    kinds = _field_types(AudioLimits)
    given = {**parameters, **{k: v for k, v in _from_environment(environment, "decode").items() if k in kinds}}
    unknown = sorted(set(given) - set(kinds))
    if unknown:
        raise ConfigError(f"unknown setting {', '.join(unknown)} in config.pbtxt; known: {', '.join(sorted(kinds))}")
    return AudioLimits(**{name: _convert(name, text, kinds[name]) for name, text in given.items()})
