"""Values and names as messages show them."""

from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.utils.shown import is_text, listed, shown


def test_what_is_short_is_shown_whole_and_what_is_long_in_part() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert shown(8.5) == "8.5"
    assert shown("x" * 10**6) == f"'{'x' * 56}..."
    assert shown(list(range(10**6)), 12) == "[0, 1, 2,..."


@given(st.one_of(st.text(), st.binary(), st.integers(), st.lists(st.text()), st.dictionaries(st.text(), st.floats())))
def test_whatever_is_shown_is_one_short_line(value: object) -> None:
    assert len(shown(value)) <= 60
    assert "\n" not in shown(value)


def test_names_are_listed_up_to_five_and_odd_ones_are_quoted() -> None:
    assert listed(["n_best", "hot words", ""]) == "n_best, 'hot words', ''"
    assert listed("abcdefg") == "a, b, c, d, e, 2 more"


@given(st.lists(st.text()))
def test_a_list_of_names_is_one_line_of_bounded_length(names: list[str]) -> None:
    assert len(listed(names)) < 350
    assert "\n" not in listed(names)


def test_half_a_character_is_no_text() -> None:
    assert is_text("流 ä 😀")
    assert not is_text("a\ud83d")
