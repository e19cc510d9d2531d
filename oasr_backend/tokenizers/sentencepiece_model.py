"""Tokens of a sentencepiece model, by the model's own ids."""

import codecs
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, register_tokenizer

# A character has no more bytes than that.
_MAX_BYTES = 4


@lru_cache(maxsize=8)
def load_model(path: Path) -> Any:
    """Raises CheckpointError when the file is no sentencepiece model."""
    import sentencepiece

    try:
        return sentencepiece.SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be read as a sentencepiece model ({type(error).__name__})") from error


@register_tokenizer("sentencepiece")
class SentencePieceTokenizer(Tokenizer):
    """`▁` is a space; tokens of single bytes (byte fallback) make up characters together."""

    spells = True

    def __init__(self, spec: TokenizerSpec, vocab_size: int):
        if spec.bpe_model is None:
            raise CheckpointError("a sentencepiece tokenizer needs its model file; name it in the checkpoint")
        self._model = model = load_model(spec.bpe_model)
        # The blank may lie behind the model's own ids.
        if not 0 <= vocab_size - len(model) <= 2:
            raise CheckpointError(
                f"{spec.bpe_model} holds {len(model)} units but the model has output_dim {vocab_size}; "
                "use the one that the model was trained with"
            )
        special = set(spec.special_tokens.values())
        self._bytes: dict[int, int] = {}
        self._pieces: list[str] = []
        for token in range(vocab_size):
            text = ""
            if token < len(model) and token not in special:
                if model.is_byte(token):
                    self._bytes[token] = int(model.id_to_piece(token)[3:-1], 16)
                elif not (model.is_control(token) or model.is_unknown(token) or model.is_unused(token)):
                    text = model.id_to_piece(token).replace("▁", " ")
            self._pieces.append(text)

    def piece(self, token: int) -> str:
        return self._pieces[token]

    def pieces(self, tokens: Sequence[int], first: int = 0) -> list[str]:
        # Back to the byte that the character in which `first` may lie begins with.
        start = first
        while start and first - start < _MAX_BYTES and tokens[start - 1] in self._bytes:
            start -= 1
            if not _continues(self._bytes[tokens[start]]):
                break
        decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        found: list[str] = []
        for index in range(start, len(tokens)):
            byte = self._bytes.get(tokens[index])
            if byte is None:
                decoder.reset()
                text = self._pieces[tokens[index]]
            else:
                text = decoder.decode(bytes((byte,)))
            if index >= first:
                found.append(text)
        return found

    def spell(self, phrase: str) -> list[int] | None:
        for spelling in dict.fromkeys((phrase, phrase.upper(), phrase.lower())):
            tokens = self._model.encode(" ".join(spelling.split()), out_type=int)
            if tokens and self._model.unk_id() not in tokens:
                return list(tokens)
        return None


def _continues(byte: int) -> bool:
    """Whether a byte can only stand behind another in UTF-8."""
    return byte & 0xC0 == 0x80
