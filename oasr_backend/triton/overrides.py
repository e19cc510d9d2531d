"""Settings as text, from config.pbtxt and the environment, strongest last."""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from oasr_backend.errors import ConfigError

PREFIX = "OASR_"
_NUMBERS = tuple[int, ...]
_MAPPING = Mapping[str, Any]
SCOPES = ("streaming", "offline", "decode")
# Read by the launcher and by clients, not by a model.
FOREIGN = frozenset({"tritonserver", "token", "admin_token", "tls", "tls_ca", "tls_cert", "tls_key"})
# Settings of the engines that begin like the scope of audio_decode, which loads no engine and so cannot look them up.
ENGINE_DECODE_NAMES = frozenset(
    {
        "decode_method",
        "decode_options",
        "decode_steps_per_tick",
        "decode_admit_window_ms",
        "decode_kv_budget_gib",
    }
)


def layered(
    parameters: Mapping[str, str],
    environment: Mapping[str, str],
    scope: str,
    known: Mapping[str, Any],
    known_elsewhere: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
    meant_elsewhere: frozenset[str] = frozenset(),
    version: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Typed values: `parameters`, overridden by OASR_<NAME>, by OASR_<SCOPE>_<NAME>, and by `version`, the settings
    of one version of the model.

    `known` maps names to types. A general variable is passed over when it is another model's (`known_elsewhere`), or
    known here but of use in another model alone (`meant_elsewhere`). Any other unknown name, one that is `fixed`, and
    a value that does not fit its type raise ConfigError.
    """
    general, scoped = _environment_of(environment, scope, known)
    elsewhere = (known_elsewhere - set(known)) | meant_elsewhere
    general = {name: text for name, text in general.items() if name not in elsewhere}
    overrides = {**general, **scoped}
    version = version or {}
    for name in fixed & set(version):
        raise ConfigError(f"{name} is fixed by config.pbtxt; remove it from settings.json")
    for name in fixed & set(overrides):
        raise ConfigError(f"{name} is fixed by config.pbtxt; remove {PREFIX}{name.upper()} from the environment")
    values = {}
    for source, given in (
        ("config.pbtxt", parameters),
        ("the environment", overrides),
        ("settings.json", version),
    ):
        for name, text in given.items():
            if name not in known:
                raise ConfigError(f"unknown setting {name!r} in {source}; known: {', '.join(sorted(known))}")
            values[name] = convert(name, text, known[name])
    return values


def _environment_of(
    environment: Mapping[str, str], scope: str, known: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """What the environment says to every model, and to those of `scope` alone.

    A whole name goes before a scope that it begins with: OASR_STREAMING_COHORT_ADMIT says something to every model.
    """
    general: dict[str, str] = {}
    scoped: dict[str, str] = {}
    for key, value in environment.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX).lower()
        owner, _, rest = name.partition("_")
        if name in known:
            general[name] = value
        elif owner == scope and name not in ENGINE_DECODE_NAMES:
            scoped[rest] = value
        elif owner not in SCOPES and name not in FOREIGN:
            general[name] = value
    return general, scoped


def field_types(settings: type) -> dict[str, Any]:
    """Types of a dataclass' fields, by name."""
    hints = typing.get_type_hints(settings)
    return {field.name: hints[field.name] for field in fields(settings)}


def is_nothing(text: str) -> bool:
    """Whether a setting that may be None is left to its default by this text."""
    return text.strip().lower() in ("", "none")


def convert(name: str, text: str, kind: Any) -> Any:
    """Text as `kind`; `none` and empty text stand for None where the type allows it. Raises ConfigError.

    Whole numbers of a tuple are written like 8,16 or as a JSON list, mappings as JSON objects.
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if types.NoneType in kinds and is_nothing(text):
        return None
    if _MAPPING in kinds and (text.lstrip().startswith("{") or str not in kinds):
        return _json(name, text, "object", dict)
    # Text can stand for any other kind of a union that it is part of.
    kind = str if str in kinds else kinds[0]
    if kind == _NUMBERS:
        return _numbers(name, text)
    if is_dataclass(kind):
        try:
            return cast(type, kind)(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"setting {name} is {text!r}; it must be a JSON object of its fields: {error}") from error
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


def _numbers(name: str, text: str) -> tuple[int, ...]:
    if text.lstrip().startswith("["):
        return tuple(_json(name, text, "list", list))
    try:
        return tuple(map(int, text.split(",")))
    except ValueError as error:
        raise ConfigError(f"setting {name} is {text!r}; it must be whole numbers like 8,16 or a JSON list") from error


def _json(name: str, text: str, shape: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"setting {name} is {text!r}; it must be a JSON {shape}: {error}") from error
    if not isinstance(value, kind):
        raise ConfigError(f"setting {name} is {text!r}; it must be a JSON {shape}")
    return value
