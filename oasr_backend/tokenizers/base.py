"""From token ids to text, and the registry of tokenizers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from oasr_backend.checkpoints.base import TokenizerSpec
from oasr_backend.errors import CheckpointError


class Tokenizer(ABC):
    """Text of token ids. The pieces of a sequence, joined and stripped at both ends, are its text."""

    @abstractmethod
    def piece(self, token: int) -> str:
        """The text that one token adds, with the space it starts with; empty for special tokens."""

    def finish(self, pieces: str) -> str:
        """Text of joined pieces."""
        return pieces.strip()

    def decode(self, tokens: Iterable[int]) -> str:
        return self.finish("".join(map(self.piece, tokens)))


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
