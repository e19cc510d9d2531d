"""Text of Hugging Face tokenizers, whatever decoder they name."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oasr_backend.tokenizers.huggingface  # noqa: F401
from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, build_tokenizer

tokenizers = pytest.importorskip("tokenizers")

LINES = ["the quick brown fox jumps over the lazy dog", "speech is not text", "don't stop , he said"] * 3
SPECIAL = ("[UNK]", "<blank>", "<eos>")


def byte_level():
    """As Whisper's: tokens of bytes, the space in front."""
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator(LINES, trainer)
    return found


def word_piece():
    """As BERT's: `##` continues a word."""
    found = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    found.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    found.decoder = tokenizers.decoders.WordPiece()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=60, special_tokens=list(SPECIAL), show_progress=False)
    found.train_from_iterator(LINES, trainer)
    return found


def unigram():
    """As sentencepiece's: `▁` is a space, which the decoder drops in front."""
    found = tokenizers.Tokenizer(tokenizers.models.Unigram())
    found.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    found.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=60, special_tokens=list(SPECIAL), unk_token="[UNK]", show_progress=False
    )
    found.train_from_iterator(LINES, trainer)
    return found


def byte_fallback():
    """As Llama's: characters that it does not know are spelt with their bytes."""
    units = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz", "▁t", "▁the"]
    vocabulary = {unit: token for token, unit in enumerate(units)}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    vocabulary["he"] = len(vocabulary)
    model = tokenizers.models.BPE(vocabulary, merges, unk_token="[UNK]", byte_fallback=True, fuse_unk=True)
    found = tokenizers.Tokenizer(model)
    found.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    found.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    return found


KINDS: dict[str, Callable] = {
    "byte_level": byte_level,
    "word_piece": word_piece,
    "unigram": unigram,
    "byte_fallback": byte_fallback,
}


@cache
def trained(kind: str):
    return KINDS[kind]()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("huggingface")


def make(folder: Path, kind: str, more: int = 0, **special: int) -> Tokenizer:
    path = folder / f"{kind}.json"
    if not path.exists():
        trained(kind).save(str(path))
    size = trained(kind).get_vocab_size(with_added_tokens=True)
    named = {unit: trained(kind).token_to_id(unit) for unit in SPECIAL}
    return build_tokenizer(TokenizerSpec("huggingface", path, {**named, **special}), size + more)


def assert_pieces_do_not_depend_on_the_split(tokenizer: Tokenizer, tokens: list[int]) -> None:
    whole = tokenizer.pieces(tokens)
    assert len(whole) == len(tokens)
    for first in range(len(tokens) + 1):
        assert tokenizer.pieces(tokens, first) == whole[first:]
        # What follows changes nothing.
        assert tokenizer.pieces(tokens[:first]) == whole[:first]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_joined_pieces_are_the_text_and_may_come_one_by_one(folder: Path, kind: str, data: st.DataObject) -> None:
    tokenizer, own = make(folder, kind), trained(kind)
    size = own.get_vocab_size(with_added_tokens=True)
    # Bytes that make up no character are another test's.
    readable = [token for token in range(size) if "�" not in own.decode([token], skip_special_tokens=False)]
    tokens = data.draw(st.lists(st.sampled_from(readable), max_size=14))
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    text = tokenizer.decode(tokens)
    assert "".join(tokenizer.pieces(tokens)).strip() == text
    special = {own.token_to_id(unit) for unit in SPECIAL}
    assert text == own.decode([token for token in tokens if token not in special]).strip()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["the quick fox", "speech is text", "the the the the the the the the the the the"])
def test_text_comes_back_as_it_was_encoded(folder: Path, kind: str, text: str) -> None:
    tokenizer, tokens = make(folder, kind), trained(kind).encode(text).ids
    assert tokenizer.decode(tokens) == text
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)


@pytest.mark.parametrize("kind", ["byte_level", "word_piece"])
def test_signs_stand_where_the_decoder_puts_them(folder: Path, kind: str) -> None:
    tokenizer, own = make(folder, kind), trained(kind)
    tokens = own.encode("don't stop , he said").ids
    assert tokenizer.decode(tokens) == own.decode(tokens)
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_brings_its_space(folder: Path, kind: str) -> None:
    """So that words can be told apart while they come."""
    tokenizer = make(folder, kind)
    tokens = trained(kind).encode("the the the").ids
    parts = ["".join(tokenizer.pieces(tokens, first)) for first in range(len(tokens))]
    assert "".join(tokenizer.pieces(tokens)).split() == ["the"] * 3
    assert any(part == " the the" for part in parts) and any(part == " the" for part in parts)


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize("text", ["naïve fox", "a 你好 b", "🙂", "a🙂b", "🇩🇪!", "🙂🙂🙂🙂 the fox", "你好" * 4])
def test_characters_of_several_bytes_belong_to_their_last_token(folder: Path, kind: str, text: str) -> None:
    tokenizer, tokens = make(folder, kind), trained(kind).encode(text).ids
    assert tokenizer.decode(tokens) == text
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    assert "�" not in "".join(tokenizer.pieces(tokens))


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_character_that_was_cut_off_takes_nothing_else_with_it(folder: Path, kind: str, lost: int) -> None:
    tokenizer, own = make(folder, kind), trained(kind)
    smile = own.encode("🙂").ids
    tokens = [*smile[: len(smile) - 4 + lost], *own.encode(" the").ids, *smile[-4:]]
    assert_pieces_do_not_depend_on_the_split(tokenizer, tokens)
    # What a decoder puts in its place is its own matter.
    assert tokenizer.decode(tokens).replace("�", "").strip() == "the🙂"
    assert tokenizer.decode(smile[:-1]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_and_those_behind_the_vocabulary_have_no_text(folder: Path, kind: str) -> None:
    own = trained(kind)
    size = own.get_vocab_size(with_added_tokens=True)
    tokenizer = make(folder, kind, more=1)
    assert [tokenizer.piece(own.token_to_id(unit)) for unit in SPECIAL] == ["", "", ""]
    tokens = own.encode("the fox").ids
    between = [
        token for pair in zip(tokens, [size, *[own.token_to_id("<blank>")] * 20], strict=False) for token in pair
    ]
    assert tokenizer.decode([size, *between, size]) == "the fox"
    assert_pieces_do_not_depend_on_the_split(tokenizer, between)


@pytest.mark.parametrize("kind", KINDS)
def test_words_keep_their_space_behind_any_number_of_special_tokens(folder: Path, kind: str) -> None:
    """A model may well write one unknown after another."""
    tokenizer, own = make(folder, kind), trained(kind)
    unknown = [own.token_to_id("[UNK]")] * 12
    tokens = own.encode("the the").ids
    first = len(tokens) // 2
    assert tokenizer.decode([*tokens[:first], *unknown, *tokens[first:]]) == "the the"


@pytest.mark.parametrize("kind", KINDS)
def test_a_phrase_is_spelt_as_the_tokenizer_writes_it(folder: Path, kind: str) -> None:
    tokenizer = make(folder, kind)
    assert tokenizer.spells
    for phrase in ("quick fox", " quick  fox\n"):
        spelling = tokenizer.spell(phrase)
        assert spelling == trained(kind).encode("quick fox").ids
        assert tokenizer.decode(spelling) == "quick fox"


@pytest.mark.parametrize("kind", ["word_piece", "unigram"])
def test_a_phrase_in_the_other_case_is_spelt_in_the_models(folder: Path, kind: str) -> None:
    spelling = make(folder, kind).spell("QUICK Fox")
    assert spelling == trained(kind).encode("quick fox").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("phrase", ["", "   "])
def test_nothing_has_no_spelling(folder: Path, kind: str, phrase: str) -> None:
    assert make(folder, kind).spell(phrase) is None


@pytest.mark.parametrize("kind", ["word_piece", "unigram"])
@pytest.mark.parametrize("phrase", ["你好", "the 🙂"])
def test_a_phrase_that_cannot_be_written_has_no_spelling(folder: Path, kind: str, phrase: str) -> None:
    assert make(folder, kind).spell(phrase) is None


@pytest.mark.parametrize("more", [-1, 3])
def test_a_tokenizer_of_another_size_is_refused(folder: Path, more: int) -> None:
    with pytest.raises(CheckpointError, match="tokens but the model has output_dim"):
        make(folder, "word_piece", more=more)


def test_a_file_that_is_missing_or_broken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{}", encoding="utf-8")
    for name in ("none.json", "broken.json"):
        with pytest.raises(CheckpointError, match=f"{name} cannot be read as a tokenizer file"):
            build_tokenizer(TokenizerSpec("huggingface", tmp_path / name, {}), 10)
