"""Tokens of a Hugging Face tokenizer file."""

from collections.abc import Sequence
from typing import Any

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import Tokenizer, register_tokenizer

# Text of a token depends on the tokens before it (its space, the rest of its character) no further back than that.
_CONTEXT = 256
_INCOMPLETE = "�"


@register_tokenizer("huggingface")
class HuggingFaceTokenizer(Tokenizer):
    """Whatever decoder a `tokenizer.json` names; a token's text is what it adds to that of those before it."""

    spells = True

    def __init__(self, spec: TokenizerSpec, vocab_size: int):
        try:
            import tokenizers
        except ImportError as error:
            raise CheckpointError(
                "this checkpoint's tokenizer needs the package tokenizers; install oasr-triton[huggingface]"
            ) from error
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(spec.unit_table))
        except Exception as error:
            raise CheckpointError(
                f"{spec.unit_table} cannot be read as a tokenizer file ({type(error).__name__})"
            ) from error
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        if not 0 <= vocab_size - size <= 2:
            raise CheckpointError(
                f"{spec.unit_table} holds {size} tokens but the model has output_dim {vocab_size}; "
                "use the one that the model was trained with"
            )
        self._special = set(spec.special_tokens.values()) | set(range(size, vocab_size))

    def piece(self, token: int) -> str:
        return self.pieces([token])[0]

    def pieces(self, tokens: Sequence[int], first: int = 0) -> list[str]:
        plain = [index for index, token in enumerate(tokens) if token not in self._special]
        behind = sum(index < first for index in plain)
        texts = {}
        # `done` tokens have given their text; those from `start` on are decoded with every new one.
        start = done = max(0, behind - _CONTEXT)
        for count in range(start + 1, len(plain) + 1):
            window = [tokens[index] for index in plain[start:count]]
            before, after = self._text(window[: done - start]), self._text(window)
            if len(after) > len(before) and not after.endswith(_INCOMPLETE):
                texts[plain[count - 1]] = after[len(before) :]
                start, done = done, count
        return [texts.get(index, "") for index in range(first, len(tokens))]

    def spell(self, phrase: str) -> list[int] | None:
        for spelling in dict.fromkeys((phrase, phrase.upper(), phrase.lower())):
            encoded = self._tokenizer.encode(" ".join(spelling.split()), add_special_tokens=False)
            unknown = self._tokenizer.token_to_id("[UNK]"), self._tokenizer.token_to_id("<unk>")
            if encoded.ids and not set(encoded.ids) & {one for one in unknown if one is not None}:
                return list(encoded.ids)
        return None

    def _text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(list(tokens))
