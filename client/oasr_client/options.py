"""Per-request options as Triton request parameters."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from oasr_client.errors import InvalidRequest

Parameter = str | int | float | bool


def encode(options: Mapping[str, Any] | None) -> dict[str, Parameter]:
    """Options as request parameters: scalars stay, lists and dicts become one JSON string, None is left out.

    Raises:
        InvalidRequest: a value of another type.
    """
    encoded: dict[str, Parameter] = {}
    for name, value in (options or {}).items():
        if isinstance(value, str | bool | int | float):
            encoded[name] = value
        elif isinstance(value, list | tuple | dict):
            encoded[name] = json.dumps(value, ensure_ascii=False)
        elif value is not None:
            raise InvalidRequest(
                f"option {name!r} is of type {type(value).__name__}: give a string, number, truth value or list"
            )
    return encoded


def parse(pairs: Iterable[str]) -> dict[str, Parameter]:
    """Options written as NAME=VALUE: `true`/`false`, integers and decimals are recognised, the rest is a string.

    Raises:
        ValueError: an entry without a name or without "=".
    """
    parsed: dict[str, Parameter] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{pair!r} is not of the form NAME=VALUE")
        parsed[name.strip()] = _value(value)
    return parsed


def _value(text: str) -> Parameter:
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        # "nan" and "inf" parse as floats but no option means them.
        return number if abs(number) < float("inf") else text
    return text
