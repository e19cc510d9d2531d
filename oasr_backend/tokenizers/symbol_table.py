"""The unit table of a checkpoint: one `token id` pair a line."""

from pathlib import Path

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, register_tokenizer

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

    @staticmethod
    def _text(unit: str) -> str:
        return " " if unit in _SPACES else unit.replace("▁", " ")

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def finish(self, pieces: str) -> str:
        return super().finish(pieces.removeprefix(self._connect))


register_tokenizer("char")(SymbolTable)
register_tokenizer("bpe")(SymbolTable)
