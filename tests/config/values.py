"""What no field may be, by the kind of value that it takes."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import torch

from oasr_backend.config import EngineConfig
from oasr_backend.config.kinds import alternatives
from oasr_backend.features.spec import FeatureSpec

KINDS: dict[str, tuple[Any, ...]] = {
    field.name: alternatives(get_type_hints(EngineConfig)[field.name]) for field in fields(EngineConfig)
}
NAMES = tuple(KINDS)

NAN = float("nan")
# Of nobody's kind, and what is only just not of a kind.
NOTHING = (object(), b"16", {1: 2}, {"a"}, 1 + 2j)
NEAR: dict[Any, tuple[Any, ...]] = {
    str: (16, True, ["auto"], torch.float32),
    int: ("16", 1.5, 16.0, True, False, [16], NAN),
    float: ("0.5", True, False, [0.5], NAN, torch.tensor(0.5)),
    bool: ("true", "false", 0, 1, 1.0),
    Mapping[str, Any]: ("{}", [], 3, {3: "x"}),
    tuple[int, ...]: ("8,16", 8.0, True, (8.0,), [8, "16"], (True,), [None], {8}),
    FeatureSpec: ("{}", {"kind": "fbank"}, FeatureSpec),
    torch.dtype: (torch.Tensor, torch.tensor(0.5)),
    type(None): (),
}


def impossible(name: str) -> list[Any]:
    """Values that are of none of a field's kinds. KeyError for a kind that nobody has thought of here."""
    kinds = KINDS[name]
    candidates = [*NOTHING, *(value for kind in kinds for value in NEAR[kind])]
    if type(None) not in kinds:
        candidates.append(None)
    return [value for value in candidates if not any(_is_of(kind, value) for kind in kinds)]


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value that is near one kind is, in a union, fully of another."""
    if kind is str:
        return isinstance(value, str)
    if kind is torch.dtype:
        return isinstance(value, torch.dtype)
    return kind == Mapping[str, Any] and isinstance(value, dict) and all(isinstance(key, str) for key in value)
