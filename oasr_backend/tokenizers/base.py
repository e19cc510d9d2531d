"""From token ids to text, and the registry of tokenizers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError


class Tokenizer(ABC):
    """Text of token ids. The pieces of a sequence, joined and stripped at both ends, are its text."""

    spells: bool = False
    """Whether `spell` can be asked."""

    @abstractmethod
    def piece(self, token: int) -> str:
        """The text that one token adds, with the space it starts with; empty for special tokens."""

    def pieces(self, tokens: Sequence[int], first: int = 0) -> list[str]:
        """Texts of `tokens` from `first` on, given those before; what follows never changes them.

        A character that several tokens make up is the last one's.
        """
        return list(map(self.piece, tokens[first:]))

    def spell(self, phrase: str) -> list[int] | None:
        """Tokens of a phrase as the model would write it; None when it cannot."""
        return None

    def finish(self, pieces: str) -> str:
        """Text of joined pieces."""
        return pieces.strip()

    def decode(self, tokens: Iterable[int]) -> str:
        return self.finish("".join(self.pieces(list(tokens))))


TOKENIZERS: dict[str, Callable[[TokenizerSpec, int], Tokenizer]] = {}


def register_tokenizer(
    kind: str,
) -> Callable[[Callable[[TokenizerSpec, int], Tokenizer]], Callable[[TokenizerSpec, int], Tokenizer]]:
    def register(build: Callable[[TokenizerSpec, int], Tokenizer]) -> Callable[[TokenizerSpec, int], Tokenizer]:
        TOKENIZERS[kind] = build
        return build

    return register


def build_tokenizer(spec: TokenizerSpec, vocab_size: int) -> Tokenizer:
    """Raises CheckpointError for an unknown kind or a table that does not fit `vocab_size`."""
    if spec.kind not in TOKENIZERS:
        raise CheckpointError(f"tokenizer {spec.kind!r} is not supported (supported: {', '.join(TOKENIZERS)})")
    return TOKENIZERS[spec.kind](spec, vocab_size)
