"""Typed access to a parsed YAML mapping, with errors that name the key."""

from collections.abc import Collection, Mapping
from typing import Any

from oasr_backend.errors import CheckpointError

ADVICE = "use a checkpoint trained with a supported value"


class Fields:
    """One mapping of a configuration file; `where` is its dotted name for messages."""

    def __init__(self, values: Any, where: str):
        if values is None:
            values = {}
        if not isinstance(values, Mapping):
            raise CheckpointError(f"{where} is {values!r}; expected a mapping of names to values")
        self._values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def raw(self, name: str, default: Any = None) -> Any:
        return self._values.get(name, default)

    def sub(self, name: str) -> "Fields":
        return Fields(self._values.get(name), f"{self._where}: {name}")

    def integer(self, name: str, default: int | None = None, minimum: int = 1) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self._wrong(name, value, f"a whole number of at least {minimum}")
        return value

    def token(self, name: str, default: int, vocab_size: int) -> int:
        """The id of a unit."""
        value = self.integer(name, default, minimum=0)
        if value >= vocab_size:
            raise self._wrong(name, value, f"an id below output_dim {vocab_size}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def choice(self, name: str, default: str | None, supported: tuple[str, ...], advice: str) -> str:
        """A string that must be one of `supported`; anything else is refused by name."""
        value = self._get(name, default)
        if value not in supported:
            raise CheckpointError(
                f"{self._where}: {name}: {value!r} is not supported (supported: {', '.join(supported)}); {advice}"
            )
        return str(value)

    def integers(self) -> dict[str, int]:
        """All values, which must be whole numbers from 0 up."""
        return {str(name): self.integer(name, minimum=0) for name in self._values}

    def refuse_others(self, supported: Collection[str]) -> None:
        """Refuses by name every option that is not `supported`."""
        for name, value in self._values.items():
            if name not in supported:
                raise CheckpointError(
                    f"{self._where}: {name}: {value!r} is not supported (supported: {', '.join(supported)}); {ADVICE}"
                )

    def refuse_unless(self, supported: Mapping[str, Any]) -> None:
        """Refuses by name every option that is there with another value than the supported one."""
        for name, value in supported.items():
            if self.raw(name, value) != value:
                raise CheckpointError(
                    f"{self._where}: {name}: {self.raw(name)!r} is not supported (supported: {value!r}); {ADVICE}"
                )

    def _get(self, name: str, default: Any) -> Any:
        value = self._values.get(name, default)
        if value is None:
            raise CheckpointError(f"{self._where}: {name} is missing")
        return value

    def _wrong(self, name: str, value: Any, expected: str) -> CheckpointError:
        return CheckpointError(f"{self._where}: {name} is {value!r}; expected {expected}")
