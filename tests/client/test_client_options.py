import pytest

from oasr_client import options
from oasr_client.errors import InvalidRequest


def test_scalars_stay_and_lists_become_json() -> None:
    given = {"a": 1, "b": 0.5, "c": True, "d": "x", "hotwords": ["ä", {"phrase": "b", "score": 2}], "none": None}
    assert options.encode(given) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "x",
        "hotwords": '["ä", {"phrase": "b", "score": 2}]',
    }
    assert options.encode(None) == {}


def test_a_value_that_cannot_travel_is_named() -> None:
    with pytest.raises(InvalidRequest, match="'a' is of type object"):
        options.encode({"a": object()})


def test_options_of_the_command_line_are_typed() -> None:
    pairs = ["n=3", "f=-0.5", "t=True", "u=false", "s=greedy", "e=", 'l=["a=b"]', "i=nan", "big=1e999"]
    assert options.parse(pairs) == {
        "n": 3,
        "f": -0.5,
        "t": True,
        "u": False,
        "s": "greedy",
        "e": "",
        "l": '["a=b"]',
        "i": "nan",
        "big": "1e999",
    }


@pytest.mark.parametrize("pair", ["", "n", "=3", " =3"])
def test_a_pair_without_a_name_is_refused(pair: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE"):
        options.parse([pair])
