"""Typed access to a parsed configuration."""

from typing import Any

import pytest

from oasr_backend.checkpoints.yaml_fields import Fields
from oasr_backend.errors import CheckpointError

FIELDS = Fields({"n": 3, "x": 1.5, "on": True, "kind": "a", "none": None, "part": {"n": 4}}, "train.yaml")


def test_values_of_the_right_kind() -> None:
    assert FIELDS.integer("n") == 3
    assert FIELDS.number("x") == 1.5
    assert FIELDS.number("n") == 3.0
    assert FIELDS.flag("on", False) is True
    assert FIELDS.choice("kind", None, ("a", "b"), "") == "a"
    assert FIELDS.sub("part").integer("n") == 4
    assert FIELDS.raw("kind") == "a"


def test_defaults_of_what_is_absent() -> None:
    assert FIELDS.integer("absent", 7) == 7
    assert FIELDS.flag("absent", False) is False
    assert FIELDS.choice("absent", "b", ("a", "b"), "") == "b"
    assert FIELDS.sub("absent").integer("n", 1) == 1
    assert FIELDS.sub("none").integer("n", 1) == 1
    assert "absent" not in FIELDS and "none" in FIELDS


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("integer", ("absent",), "train.yaml: absent is missing"),
        ("integer", ("x",), "x is 1.5; expected a whole number of at least 1"),
        ("integer", ("on",), "on is True; expected a whole number"),
        ("integer", ("n", None, 4), "n is 3; expected a whole number of at least 4"),
        ("number", ("kind",), "kind is 'a'; expected a number"),
        ("number", ("on",), "on is True; expected a number"),
        ("flag", ("n", False), "n is 3; expected true or false"),
        ("choice", ("kind", None, ("b", "c"), "do that"), r"kind: 'a' is not supported \(supported: b, c\); do that"),
        ("sub", ("n",), "train.yaml: n is 3; expected a mapping"),
    ],
)
def test_wrong_values_are_named(method: str, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        getattr(FIELDS, method)(*arguments)


def test_a_nested_name_is_written_whole() -> None:
    with pytest.raises(CheckpointError, match=r"train\.yaml: part: n is 4"):
        FIELDS.sub("part").integer("n", minimum=5)
