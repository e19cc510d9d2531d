"""What a request may ask of its decoding; what cannot be honoured is rejected, never ignored."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

# Options of autoregressive families, at the values that mean "not asked for".
_AUTOREGRESSIVE: dict[str, Any] = {
    "max_new_tokens": None,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "prompt": None,
    "task": None,
    "language": None,
}


@dataclass(frozen=True)
class DecodingOptions:
    """Per-request knobs. Raises ValueError at construction for a value that is impossible in itself."""

    n_best: int = 1
    """Hypotheses in the final output."""
    word_timestamps: bool = False
    """Words with times and confidences."""
    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    prompt: str | None = None
    task: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.n_best, bool) or not isinstance(self.n_best, int) or self.n_best < 1:
            raise ValueError(f"n_best is {self.n_best!r}; it must be a whole number of at least 1")
        if not isinstance(self.word_timestamps, bool):
            raise ValueError(f"word_timestamps is {self.word_timestamps!r}; it must be true or false")

    @classmethod
    def coerce(cls, options: "DecodingOptions | Mapping[str, Any] | None") -> "DecodingOptions":
        """Options from what a caller may pass. Raises ValueError for a name that is no option."""
        if options is None:
            return cls()
        if isinstance(options, cls):
            return options
        if not isinstance(options, Mapping):
            raise ValueError(f"decoding is {options!r}; pass DecodingOptions or a mapping of their fields")
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ValueError(f"unknown decoding option {', '.join(unknown)}; valid are {', '.join(known)}")
        return cls(**options)

    def check(self, max_n_best: int, times_words: bool) -> None:
        """Raises ValueError for an option that the loaded model and decode method cannot honour."""
        for name, default in _AUTOREGRESSIVE.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, but no autoregressive decode family is installed; leave it out"
                )
        if self.n_best > max_n_best:
            raise ValueError(f"n_best is {self.n_best}, but this decode method gives {max_n_best}; ask for no more")
        if self.word_timestamps and not times_words:
            raise ValueError("word_timestamps is set, but this model cannot time its words; leave it out")
