"""Text of a sentencepiece model's own ids, character fallbacks to bytes included."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

import oasr_backend.tokenizers.sentencepiece_model  # noqa: F401
from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, build_tokenizer
from tests.golden.cases import DATA

BPE = DATA / "u2pp_conformer_bpe" / "bpe.model"
LINES = ["the quick brown fox jumps over the lazy dog", "speech is not text", "how much wood would a woodchuck chuck"]


def make(path: Path, vocab_size: int | None = None, **special: int) -> Tokenizer:
    size = len(model(path)) if vocab_size is None else vocab_size
    return build_tokenizer(TokenizerSpec("sentencepiece", path, special, bpe_model=path), size)


@cache
def model(path: Path) -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


@pytest.fixture(scope="module")
def with_bytes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that spells characters that it does not know with their bytes."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    text = folder / "text"
    text.write_text("\n".join(LINES * 4), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(folder / "bytes"),
        vocab_size=320,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return folder / "bytes.model"


def ids(path: Path, text: str) -> list[int]:
    return list(model(path).encode(text))


def assert_pieces_do_not_depend_on_the_split(tokenizer: Tokenizer, tokens: Sequence[int]) -> None:
    whole = tokenizer.pieces(tokens)
    assert len(whole) == len(tokens)
    for first in range(len(tokens) + 1):
        assert tokenizer.pieces(tokens, first) == whole[first:]
        # What follows changes nothing.
        assert tokenizer.pieces(tokens[:first]) == whole[:first]


@given(st.lists(st.integers(0, 71), max_size=12))
def test_joined_pieces_are_the_text_and_may_come_one_by_one(tokens: list[int]) -> None:
    tokenizer = make(BPE)
    assert "".join(tokenizer.pieces(tokens)).strip() == tokenizer.decode(tokens)
    assert tokenizer.pieces(tokens) == [tokenizer.piece(token) for token in tokens]
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    assert "▁" not in tokenizer.decode(tokens)


@pytest.mark.parametrize("text", ["SPEECH", "THE QUICK BROWN DOG", "A"])
def test_text_comes_back_as_the_model_encodes_it(text: str) -> None:
    tokens = ids(BPE, text)
    assert make(BPE).decode(tokens) == text == model(BPE).decode(tokens)


def test_control_tokens_and_the_unknown_have_no_text() -> None:
    tokenizer, own = make(BPE), model(BPE)
    for token in (own.unk_id(), own.bos_id(), own.eos_id()):
        assert tokenizer.piece(token) == ""
    assert tokenizer.decode([own.bos_id(), *ids(BPE, "DOG"), own.unk_id(), own.eos_id()]) == "DOG"


def test_tokens_behind_the_models_own_and_special_ones_have_no_text() -> None:
    """A blank that was added behind, and one that took a piece's place."""
    size = len(model(BPE))
    tokenizer = make(BPE, size + 1, **{"<blank>": size})
    assert tokenizer.decode([size, *ids(BPE, "DOG"), size]) == "DOG"
    taken = ids(BPE, "DOG")[0]
    assert make(BPE, **{"<blank>": taken}).piece(taken) == ""


@pytest.mark.parametrize("text", ["the fox", "naïve fox", "speech 你好 text", "🙂", "a🙂b", "🇩🇪!", "e\u0301"])
def test_characters_of_several_bytes_belong_to_their_last_token(with_bytes: Path, text: str) -> None:
    tokenizer, tokens = make(with_bytes), ids(with_bytes, text)
    assert tokenizer.decode(tokens) == text
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    pieces = tokenizer.pieces(tokens)
    for index, token in enumerate(tokens):
        if model(with_bytes).is_byte(token):
            assert len(pieces[index]) <= 1
    assert "�" not in "".join(pieces)


def bytes_of(path: Path, data: bytes) -> list[int]:
    return [model(path).piece_to_id(f"<0x{byte:02X}>") for byte in data]


def test_bytes_that_make_up_nothing_have_no_text(with_bytes: Path) -> None:
    tokenizer = make(with_bytes)
    smile, fox = "🙂".encode(), ids(with_bytes, "fox")
    for size in range(1, len(smile)):
        assert tokenizer.decode(bytes_of(with_bytes, smile[:size])) == ""
        # Nor does what comes behind them make them whole.
        broken = [*bytes_of(with_bytes, smile[:size]), *fox, *bytes_of(with_bytes, smile[size:])]
        assert tokenizer.decode(broken) == "fox"
        assert_pieces_do_not_depend_on_the_split(tokenizer, broken)


@given(st.lists(st.sampled_from([*"🙂你é a".encode(), 0xFF, 0x80]), max_size=12))
def test_any_bytes_may_come_in_any_pieces(with_bytes: Path, data: list[int]) -> None:
    tokenizer, tokens = make(with_bytes), bytes_of(with_bytes, bytes(data))
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    assert "".join(tokenizer.pieces(tokens)).strip() == tokenizer.decode(tokens)


@given(st.text(st.sampled_from("ab 🙂你é\u0301😀好"), max_size=8), st.integers(0, 3))
def test_whole_characters_are_read_whatever_bytes_were_lost_before_them(with_bytes: Path, text: str, lost: int) -> None:
    """Behind a character that was cut off the next ones are read as they are."""
    tokenizer = make(with_bytes)
    tokens = bytes_of(with_bytes, "🙂".encode()[:lost] + text.encode())
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    assert tokenizer.decode(tokens) == text.strip()


def test_a_phrase_is_spelt_as_the_model_writes_it() -> None:
    tokenizer = make(BPE)
    assert tokenizer.spells
    expected = ids(BPE, "QUICK BROWN")
    for phrase in ("QUICK BROWN", "quick brown", "Quick  Brown ", "\tqUICK brown"):
        assert tokenizer.spell(phrase) == expected
    assert tokenizer.decode(expected) == "QUICK BROWN"


@pytest.mark.parametrize("phrase", ["", "  ", "你好", "DOG 7", "🙂"])
def test_a_phrase_that_the_model_cannot_write_has_no_spelling(phrase: str) -> None:
    assert make(BPE).spell(phrase) is None


def test_a_model_with_bytes_spells_everything(with_bytes: Path) -> None:
    tokenizer = make(with_bytes)
    for phrase in ("the fox", "你好 🙂"):
        spelling = tokenizer.spell(phrase)
        assert spelling is not None and tokenizer.decode(spelling) == phrase


@pytest.mark.parametrize("more", [-1, 3])
def test_a_model_of_another_size_is_refused(more: int) -> None:
    size = len(model(BPE))
    with pytest.raises(CheckpointError, match=rf"holds {size} units but the model has output_dim {size + more}"):
        make(BPE, size + more)


def test_a_model_that_is_missing_or_broken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="needs its model file"):
        build_tokenizer(TokenizerSpec("sentencepiece", BPE, {}), 100)
    for path in (tmp_path / "none.model", tmp_path / "broken.model"):
        (tmp_path / "broken.model").write_bytes(b"no model")
        with pytest.raises(CheckpointError, match=f"{path.name} cannot be read as a sentencepiece model"):
            build_tokenizer(TokenizerSpec("sentencepiece", path, {}, bpe_model=path), 100)
