"""Settings as text, from config.pbtxt and the environment, strongest last."""

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from oasr_backend.errors import ConfigError

PREFIX = "OASR_"
SCOPES = ("streaming", "offline", "decode")
# Read by the launcher, not by a model.
_FOREIGN = frozenset({"tritonserver"})


def layered(
    parameters: Mapping[str, str],
    environment: Mapping[str, str],
    scope: str,
    known: Mapping[str, Any],
    known_elsewhere: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Typed values: `parameters`, overridden by OASR_<NAME>, overridden by OASR_<SCOPE>_<NAME>.

    `known` maps names to types. A general variable of another model (`known_elsewhere`) is passed over; any other
    unknown name, one that is `fixed`, and a value that does not fit its type raise ConfigError.
    """
    general, scoped = _environment_of(environment, scope)
    general = {name: text for name, text in general.items() if name in known or name not in known_elsewhere}
    overrides = {**general, **scoped}
    for name in fixed & set(overrides):
        raise ConfigError(f"{name} is fixed by config.pbtxt; remove {PREFIX}{name.upper()} from the environment")
    values = {}
    for source, given in (("config.pbtxt", parameters), ("the environment", overrides)):
        for name, text in given.items():
            if name not in known:
                raise ConfigError(f"unknown setting {name!r} in {source}; known: {', '.join(sorted(known))}")
            values[name] = convert(name, text, known[name])
    return values


def _environment_of(environment: Mapping[str, str], scope: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the environment says to every model, and to those of `scope` alone."""
    general: dict[str, str] = {}
    scoped: dict[str, str] = {}
    for key, value in environment.items():
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX).lower()
        owner, _, rest = name.partition("_")
        if owner == scope:
            scoped[rest] = value
        elif owner not in SCOPES and name not in _FOREIGN:
            general[name] = value
    return general, scoped


def field_types(settings: type) -> dict[str, Any]:
    """Types of a dataclass' fields, by name."""
    hints = typing.get_type_hints(settings)
    return {field.name: hints[field.name] for field in fields(settings)}


def convert(name: str, text: str, kind: Any) -> Any:
    """Text as `kind`; `none` and empty text stand for None where the type allows it. Raises ConfigError."""
    if isinstance(kind, types.UnionType):
        if text.strip().lower() in ("", "none"):
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
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
