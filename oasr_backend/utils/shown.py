"""What a caller sent, as an error message shows it: enough to find it again, never the whole of something huge."""

from collections.abc import Iterable

_LIMIT = 60
_MOST = 5


def shown(value: object, limit: int = _LIMIT) -> str:
    """`repr` of a value, on one line, of `limit` characters at most."""
    if isinstance(value, str | bytes | list | tuple):
        # A megabyte is not spelled out only to be cut.
        value = value[: limit + 1]
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def listed(names: Iterable[str]) -> str:
    """Names that a caller chose, as a list of bounded length; those that are no plain words are quoted."""
    every = list(names)
    words = [name if name.isascii() and name.isidentifier() and len(name) <= _LIMIT else shown(name) for name in every]
    more = [f"{len(words) - _MOST} more"] if len(words) > _MOST else []
    return ", ".join([*words[:_MOST], *more])


def is_text(value: str) -> bool:
    """Whether a string can be written as UTF-8: JSON lets half of a surrogate pair through, which nothing can show."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
