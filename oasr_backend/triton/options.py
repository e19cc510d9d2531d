"""Request parameters as options: rejected when they cannot be honoured, never ignored."""

import json
from dataclasses import fields
from typing import Any, TypeVar

from oasr_backend.triton.errors import invalid_option

Options = TypeVar("Options")

# Parameters that Triton's own clients and server add.
_SERVER_PREFIX = "triton_"


def parse_options(parameters: str, options: type[Options]) -> Options:
    """Builds the dataclass `options` from a request's parameters (a JSON object).

    Raises Refusal for a name that is no field and for a value that is not of the field's type; every field is optional.
    """
    values = {name: value for name, value in _given(parameters).items() if not name.startswith(_SERVER_PREFIX)}
    known = {field.name: field for field in fields(options)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        valid = ", ".join(known) or "none"
        raise invalid_option(f"unknown option {', '.join(unknown)}; valid here: {valid}")
    return options(**{name: _convert(name, value) for name, value in values.items()})


def given_names(parameters: str) -> list[str]:
    """Names of the options that a request carries."""
    return sorted(name for name in _given(parameters) if not name.startswith(_SERVER_PREFIX))


def _given(parameters: str) -> dict[str, Any]:
    return json.loads(parameters) if parameters else {}


def _convert(name: str, value: Any) -> int:
    """Every option so far is a whole number; clients may send it as text."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_option(f"option {name} is {value!r}; it must be a whole number")
    return value
