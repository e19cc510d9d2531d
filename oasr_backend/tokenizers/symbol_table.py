"""The unit table of a checkpoint: one `token id` pair a line."""

from pathlib import Path

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.decode.words import stands_alone
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, register_tokenizer
from oasr_backend.tokenizers.sentencepiece_model import load_model

# Recognised by name, because their ids differ from recipe to recipe.
_SPECIAL = frozenset({"<blank>", "<blk>", "<unk>", "<sos/eos>", "<sos>", "<eos>", "<s>", "</s>", "<pad>"})
_SPACES = frozenset({"<space>", "▁"})


def read_unit_table(path: Path, vocab_size: int) -> list[str]:
    """Tokens by id. Raises CheckpointError unless the ids are 0 .. vocab_size - 1, each once."""
    tokens: dict[int, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} cannot be read as UTF-8 text ({type(error).__name__}); write it again"
        ) from error
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields:
            continue
        if len(fields) != 2 or not fields[1].isdecimal():
            raise CheckpointError(f"{path}:{number}: expected 'token id', found {line!r}")
        if int(fields[1]) in tokens:
            raise CheckpointError(f"{path}:{number}: id {fields[1]} is there twice")
        tokens[int(fields[1])] = fields[0]
    if len(tokens) != vocab_size or max(tokens, default=-1) != vocab_size - 1:
        raise CheckpointError(
            f"{path} holds {len(tokens)} units but the model has output_dim {vocab_size}; "
            "use the table that the model was trained with"
        )
    return [tokens[index] for index in range(vocab_size)]


class SymbolTable(Tokenizer):
    """Characters or subwords; `▁` in a token is a space."""

    spells = True

    def __init__(self, spec: TokenizerSpec, vocab_size: int):
        named = {token for name, token in spec.special_tokens.items() if name in _SPECIAL}
        units = read_unit_table(spec.unit_table, vocab_size)
        self.units = tuple(units)
        self._pieces = [
            "" if index in named or unit in _SPECIAL else self._text(unit) for index, unit in enumerate(units)
        ]
        if spec.connect_symbol:
            self._pieces = [piece and spec.connect_symbol + piece for piece in self._pieces]
        self._connect = spec.connect_symbol
        self._ids = {unit: index for index, unit in enumerate(units) if self._pieces[index] or unit in _SPACES}
        self._longest = max(map(len, self._ids), default=1)
        self._starts_words = any(unit.startswith("▁") and len(unit) > 1 for unit in units)
        self._model = spec.bpe_model

    @staticmethod
    def _text(unit: str) -> str:
        return " " if unit in _SPACES else unit.replace("▁", " ")

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def spell(self, phrase: str) -> list[int] | None:
        """By the table's own subword model where there is one, else by the longest unit that fits."""
        words = phrase.split()
        if not words:
            return None
        for spelling in dict.fromkeys((" ".join(words), " ".join(words).upper(), " ".join(words).lower())):
            # The subword model may know less than the table, as of a second script.
            tokens = (self._by_model(spelling) if self._model is not None else None) or self._by_longest(spelling)
            if tokens:
                return tokens
        return None

    def _by_model(self, phrase: str) -> list[int] | None:
        assert self._model is not None
        units = load_model(self._model).encode(phrase, out_type=str)
        return [self._ids[unit] for unit in units] if all(unit in self._ids for unit in units) else None

    def _by_longest(self, phrase: str) -> list[int] | None:
        text = "▁" + phrase.replace(" ", "▁") if self._starts_words else phrase.replace(" ", self._space())
        tokens: list[int] = []
        while text:
            # Scripts without spaces stand in such tables without the mark of a word's start.
            if text[0] == "▁" and text[:2] not in self._ids and stands_alone(text[1:2] or " "):
                text = text[1:]
            unit = next((text[:size] for size in range(self._longest, 0, -1) if text[:size] in self._ids), None)
            if unit is None:
                return None
            tokens.append(self._ids[unit])
            text = text[len(unit) :]
        return tokens

    def _space(self) -> str:
        """How the table writes a space between words; scripts without spaces have none."""
        return next((unit for unit in ("▁", "<space>") if unit in self._ids), "")

    def finish(self, pieces: str) -> str:
        return super().finish(pieces.removeprefix(self._connect))


register_tokenizer("char")(SymbolTable)
register_tokenizer("bpe")(SymbolTable)
