"""Request parameters as options: rejected when they cannot be honoured, never ignored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

from oasr_backend.triton.errors import invalid_option


class CheckedOptions(Protocol):
    """A dataclass of options."""

    def check(self) -> None:
        """Raises Refusal for a value that is impossible in itself."""


Options = TypeVar("Options", bound=CheckedOptions)

# Parameters that Triton's own clients and server add.
_SERVER_PREFIX = "triton_"
_SPELLINGS = {"true": True, "1": True, "false": False, "0": False}


def parse_options(parameters: str, options: type[Options], meant_elsewhere: Sequence[str] = ()) -> Options:
    """Builds the dataclass `options` from a request's parameters (a JSON object).

    Names that are `meant_elsewhere` are another model's of the same ensemble. Raises Refusal for any other name that
    is no field and for a value that is not of the field's type; every field is optional.
    """
    values = _given(parameters)
    known = [field.name for field in fields(options)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - {*known, *meant_elsewhere})
    if unknown:
        valid = ", ".join([*known, *meant_elsewhere]) or "none"
        raise invalid_option(f"unknown option {', '.join(unknown)}; valid here: {valid}")
    kinds = get_type_hints(options)
    parsed = options(**{name: _convert(name, values[name], kinds[name]) for name in known if name in values})
    parsed.check()
    return parsed


def given_names(parameters: str) -> list[str]:
    """Names of the options that a request carries."""
    return sorted(_given(parameters))


def _given(parameters: str) -> Mapping[str, Any]:
    values = json.loads(parameters) if parameters else {}
    return {name: value for name, value in values.items() if not name.startswith(_SERVER_PREFIX)}


def _convert(name: str, value: Any, kind: Any) -> bool | int | float | str:
    """A value of the option's type; clients may send any of them as text."""
    if str in (kind, *get_args(kind)):
        if not isinstance(value, str):
            raise invalid_option(f"option {name} is {value!r}; it must be a text")
        return value
    if float in (kind, *get_args(kind)):
        try:
            return float(value)
        except (TypeError, ValueError):
            raise invalid_option(f"option {name} is {value!r}; it must be a number") from None
    if bool in (kind, *get_args(kind)):
        spelling = str(value).strip().lower()
        if spelling not in _SPELLINGS:
            raise invalid_option(f"option {name} is {value!r}; it must be true or false")
        return _SPELLINGS[spelling]
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_option(f"option {name} is {value!r}; it must be a whole number")
    return value
