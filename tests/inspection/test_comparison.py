"""Texts that differ, word by word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.inspection.comparison import Difference, differences


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("", "", []),
        ("ONE TWO", "ONE  TWO ", []),
        ("ONE TWO THREE", "ONE THREE", [Difference("TWO", "")]),
        ("ONE TWO", "ONE TOO FOUR", [Difference("TWO", "TOO FOUR")]),
        ("", "ONE", [Difference("", "ONE")]),
        ("一二三", "一四三", [Difference("二", "四")]),
        ("OK一二", "OK一", [Difference("二", "")]),
    ],
)
def test_what_differs(left: str, right: str, expected: list[Difference]) -> None:
    assert differences(left, right) == expected


@given(*[st.lists(st.sampled_from(["ONE", "TWO", "三", "四"]), max_size=6).map(" ".join)] * 2)
def test_nothing_differs_only_in_equal_texts(left: str, right: str) -> None:
    assert bool(differences(left, right)) == (left != right)
    assert all(one.left != one.right for one in differences(left, right))
