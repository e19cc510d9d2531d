"""What a field's annotation allows, and how it is said in words."""

import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args

import torch

from oasr_backend.features.spec import FeatureSpec

MAPPING = Mapping[str, Any]
SIZES = tuple[int, ...]
_WORDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    MAPPING: "a mapping of names to values",
    SIZES: "whole numbers",
    FeatureSpec: "a FeatureSpec",
    torch.dtype: "a torch.dtype",
    NoneType: "None",
}


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """The kinds that an annotation is a union of."""
    return get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)


def in_words(annotation: Any) -> str:
    return " or ".join(_WORDS[kind] for kind in alternatives(annotation))


def normalised(annotation: Any, value: Any) -> Any:
    """`value` in the one form in which it is kept: numbers as a tuple, a mapping as a copy of its own."""
    kinds = alternatives(annotation)
    if SIZES in kinds and isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if SIZES in kinds and isinstance(value, list):
        return tuple(value)
    if MAPPING in kinds and isinstance(value, Mapping):
        return dict(value)
    return value


def is_allowed(annotation: Any, value: Any) -> bool:
    """Raises TypeError for an annotation that has no rule here: what nothing checks must not pass for checked."""
    kinds = alternatives(annotation)
    if any(kind not in _WORDS for kind in kinds):
        raise TypeError(f"annotation {annotation} has no rule; add one to {__name__}")
    return any(_is_one(kind, value) for kind in kinds)


def _is_one(kind: Any, value: Any) -> bool:
    if kind is int:
        # True and false are whole numbers to Python.
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if kind == SIZES:
        return isinstance(value, tuple) and all(_is_one(int, size) for size in value)
    if kind == MAPPING:
        return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return isinstance(value, kind)
