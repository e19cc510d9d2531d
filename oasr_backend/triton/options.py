"""Request parameters as options: rejected when they cannot be honoured, never ignored."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar, get_args, get_type_hints

from oasr_backend.triton.errors import invalid_option
from oasr_backend.utils.numbers import is_number
from oasr_backend.utils.shown import is_text, listed, shown


class CheckedOptions(Protocol):
    """A dataclass of options."""

    def check(self) -> None:
        """Raises Refusal for a value that is impossible in itself."""


Options = TypeVar("Options", bound=CheckedOptions)

# Parameters that Triton's own clients and server add.
_SERVER_PREFIX = "triton_"
_SPELLINGS = {"true": True, "1": True, "false": False, "0": False}
# Longer ones are beyond every option, and slow to read.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


def parse_options(
    parameters: str,
    options: type[Options],
    foreign: Mapping[str, str] | None = None,
    meant_elsewhere: Sequence[str] = (),
) -> Options:
    """Builds the dataclass `options` from a request's parameters (a JSON object).

    Names that are `meant_elsewhere` are another model's of the same ensemble. `foreign` says of names that are options
    of other requests why they are none here. Raises Refusal for any other name that is no field and for a value that
    is not of the field's type; every field is optional.
    """
    values = _given(parameters)
    known = [field.name for field in fields(options)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - {*known, *meant_elsewhere})
    for name in unknown:
        if foreign is not None and name in foreign:
            raise invalid_option(f"{name} {foreign[name]}")
    if unknown:
        valid = ", ".join([*known, *meant_elsewhere]) or "none"
        raise invalid_option(f"unknown option {listed(unknown)}; valid here: {valid}")
    kinds = get_type_hints(options)
    parsed = options(**{name: _convert(name, values[name], kinds[name]) for name in known if name in values})
    parsed.check()
    return parsed


def given_names(parameters: str) -> list[str]:
    """Names of the options that a request carries."""
    return sorted(_given(parameters))


def _given(parameters: str) -> Mapping[str, Any]:
    try:
        values = json.loads(parameters) if parameters else {}
    except (ValueError, RecursionError):
        raise invalid_option("the request's parameters cannot be read; send strings, numbers, true or false") from None
    return {name: value for name, value in values.items() if not name.startswith(_SERVER_PREFIX)}


def _convert(name: str, value: Any, kind: Any) -> bool | int | float | str:
    """A value of the option's type; clients may send any of them as text."""
    kinds = (kind, *get_args(kind))
    if str in kinds:
        if not isinstance(value, str) or not is_text(value):
            raise invalid_option(f"option {name} is {shown(value)}; it must be a text")
        return value
    if float in kinds:
        number = _number(value)
        if number is None:
            raise invalid_option(f"option {name} is {shown(value)}; it must be a number")
        return number
    if bool in kinds:
        spelling = value.strip().lower() if isinstance(value, str) else json.dumps(value)
        if spelling not in _SPELLINGS:
            raise invalid_option(f"option {name} is {shown(value)}; it must be true or false")
        return _SPELLINGS[spelling]
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_option(f"option {name} is {shown(value)}; it must be a whole number")
    return value


def _number(value: Any) -> float | None:
    """A finite number; None for what is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return float(value) if is_number(value) else None
