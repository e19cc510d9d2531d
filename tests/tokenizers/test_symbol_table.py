"""Unit tables, the text of tokens, and the tokens of phrases."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, build_tokenizer
from oasr_backend.tokenizers.symbol_table import read_unit_table
from tests.golden.cases import CASES, GoldenCase

UNITS = ["<blank>", "<unk>", "<sos/eos>", "▁THE", "▁C", "AT", "▁", "你", "好"]


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "units.txt"
    path.write_text(text, encoding="utf-8")
    return path


def make(tmp_path: Path, units: list[str], **options: object) -> Tokenizer:
    path = table(tmp_path, "".join(f"{unit} {index}\n" for index, unit in enumerate(units)))
    spec = TokenizerSpec(**{"kind": "bpe", "unit_table": path, "special_tokens": {}, **options})  # type: ignore[arg-type]
    return build_tokenizer(spec, len(units))


def test_subwords_join_to_words(tmp_path: Path) -> None:
    assert make(tmp_path, UNITS).decode([3, 4, 5]) == "THE CAT"


def test_characters_join_without_spaces(tmp_path: Path) -> None:
    assert make(tmp_path, UNITS, kind="char").decode([7, 8]) == "你好"


def test_special_tokens_have_no_text(tmp_path: Path) -> None:
    assert make(tmp_path, UNITS).decode([0, 1, 3, 2, 1, 4, 5, 2]) == "THE CAT"


def test_a_lone_mark_is_a_space_and_ends_are_stripped(tmp_path: Path) -> None:
    assert make(tmp_path, UNITS).decode([6, 7, 6, 8, 6]) == "你 好"


def test_an_older_table_spells_the_space_out(tmp_path: Path) -> None:
    assert make(tmp_path, ["<blank>", "<space>", "a"], kind="char").decode([2, 1, 2]) == "a a"


def test_nothing_is_no_text(tmp_path: Path) -> None:
    assert make(tmp_path, UNITS).decode([]) == ""
    assert make(tmp_path, UNITS).decode([0, 2]) == ""


def test_specials_are_known_by_name_and_not_by_id(tmp_path: Path) -> None:
    assert make(tmp_path, ["<blank>", "a", "b", "<sos/eos>"], kind="char").decode([1, 2, 3]) == "ab"


def test_specials_of_the_configuration_have_no_text(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, ["<blank>", "!", "a"], kind="char", special_tokens={"<unk>": 1})
    assert tokenizer.decode([1, 2, 1]) == "a"


def test_a_connecting_symbol_stands_between_units(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, ["<blank>", "a", "b", "<unk>"], kind="char", connect_symbol="-")
    assert tokenizer.decode([1, 2, 0, 1]) == "a-b-a"
    assert tokenizer.decode([1]) == "a"


@given(st.lists(st.integers(0, 99), max_size=30))
def test_joined_pieces_are_the_text(tokens: list[int]) -> None:
    tokenizer = GoldenCase("u2pp_conformer_bpe").tokenizer
    assert tokenizer.finish("".join(map(tokenizer.piece, tokens))) == tokenizer.decode(tokens)
    assert "▁" not in tokenizer.decode(tokens) and "<" not in tokenizer.decode(tokens)


def test_units_are_ordered_by_id_whatever_the_order_of_lines(tmp_path: Path) -> None:
    assert read_unit_table(table(tmp_path, "b 1\n\n a 0 \nc\t2\n"), 3) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "size", "words"),
    [
        ("a 0\nb\n", 2, r"units\.txt:2: expected 'token id', found 'b'"),
        ("a 0\nb one\n", 2, r"units\.txt:2: expected 'token id'"),
        ("a 0\nb c 1\n", 2, r"units\.txt:2: expected 'token id'"),
        ("a 0\nb -1\n", 2, r"units\.txt:2: expected 'token id'"),
        ("a 0\nb 0\n", 2, r"units\.txt:2: id 0 is there twice"),
        ("a 0\nb 1\n", 3, r"2 units but the model has output_dim 3"),
        ("a 0\nb 1\nc 2\n", 2, r"3 units but the model has output_dim 2"),
        ("a 0\nb 2\n", 2, r"units"),
        ("a 1\nb 2\n", 2, r"units"),
        ("", 2, r"0 units but the model has output_dim 2"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, text: str, size: int, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_unit_table(table(tmp_path, text), size)


def test_a_table_in_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "units.txt"
    path.write_bytes("<blank> 0\n你 1\n".encode("gbk"))
    with pytest.raises(CheckpointError, match=r"units\.txt"):
        read_unit_table(path, 2)


def test_an_unknown_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'whisper' is not supported \(supported: .*char, bpe.*\)"):
        make(tmp_path, UNITS, kind="whisper")


# spelling


@pytest.mark.parametrize("name", CASES)
def test_phrases_are_spelt_as_they_were_recorded(name: str) -> None:
    case = GoldenCase(name)
    phrases = (case.path / "context.txt").read_text(encoding="utf-8").splitlines()
    expected = json.loads((case.path / "info.json").read_text(encoding="utf-8"))["context_ids"]
    assert [case.tokenizer.spell(phrase) for phrase in phrases] == expected


def test_a_phrase_may_be_written_in_any_case_and_with_any_spaces() -> None:
    tokenizer = GoldenCase("u2pp_conformer_bpe").tokenizer
    expected = tokenizer.spell("QUICK BROWN")
    assert expected is not None
    for phrase in ("quick brown", "Quick Brown", " QUICK\t brown\n"):
        assert tokenizer.spell(phrase) == expected


def test_a_phrases_own_case_comes_first(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, ["<blank>", "a", "A", "b", "<sos/eos>"], kind="char")
    assert tokenizer.spell("a") == [1] and tokenizer.spell("A") == [2]
    # Only the lower one is there.
    assert tokenizer.spell("B") == [3]
    # All of it in one case: in upper case there is no b.
    assert tokenizer.spell("AB") == [1, 3]


@pytest.mark.parametrize("phrase", ["", " ", "DOG 7", "你好", "D€G"])
def test_a_phrase_that_the_units_cannot_spell_has_no_tokens(phrase: str) -> None:
    for name in ("u2pp_conformer_bpe", "u2_conformer_bn_causal"):
        assert GoldenCase(name).tokenizer.spell(phrase) is None


def test_special_tokens_spell_nothing(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, UNITS, kind="char")
    for phrase in ("<unk>", "<blank>", "<sos/eos>"):
        assert tokenizer.spell(phrase) is None


def test_without_a_model_the_longest_units_spell_a_phrase(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, ["<blank>", "▁T", "▁TH", "▁THE", "E", "▁C", "AT", "A", "T", "S", "▁", "<sos/eos>"])
    assert tokenizer.spell("the cats") == [3, 5, 6, 9]
    assert tokenizer.spell("a cat") == [10, 7, 5, 6]
    assert tokenizer.decode([3, 5, 6, 9]) == "THE CATS"


def test_characters_have_spaces_between_words_where_the_table_has_one(tmp_path: Path) -> None:
    assert make(tmp_path, ["<blank>", "▁", "a", "b", "<unk>"], kind="char").spell("ab a") == [2, 3, 1, 2]
    assert make(tmp_path, ["<blank>", "你", "好", "<unk>"], kind="char").spell("你 好") == [1, 2]


def test_an_older_tables_space_spells_the_space_between_words(tmp_path: Path) -> None:
    tokenizer = make(tmp_path, ["<blank>", "<space>", "a", "b", "<unk>"], kind="char")
    tokens = tokenizer.spell("a b")
    assert tokens == [2, 1, 3]
    assert tokenizer.decode(tokens) == "a b"


def test_a_table_of_both_scripts_spells_both(tmp_path: Path) -> None:
    """Characters that are words stand for themselves, and only what is between them is cut into subwords."""
    recorded = GoldenCase("u2pp_conformer_bpe")
    units = read_unit_table(recorded.path / "units.txt", 100)
    characters = [units.index("乞"), units.index("也")]
    for tokenizer in (recorded.tokenizer, make(tmp_path, units)):
        dog = tokenizer.spell("DOG")
        assert dog is not None
        assert tokenizer.spell("乞也") == characters
        assert tokenizer.spell("乞也 dog") == [*characters, *dog]
        assert tokenizer.spell("DOG 乞也") == [*dog, *characters]


@given(st.lists(st.integers(3, 8), min_size=1, max_size=8))
def test_a_spelling_reads_as_the_phrase(tmp_path: Path, tokens: list[int]) -> None:
    tokenizer = make(tmp_path, UNITS)
    text = tokenizer.decode(tokens)
    spelling = tokenizer.spell(text)
    # Beside a script without spaces there may be one or none.
    assert spelling is None or tokenizer.decode(spelling).replace(" ", "") == text.replace(" ", "")
