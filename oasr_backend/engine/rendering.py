"""The text of a growing hypothesis: what is settled is kept, so that an hour of speech costs no more than a minute."""

from dataclasses import dataclass, field

from oasr_backend.decode.base import Hypothesis
from oasr_backend.decode.words import TimedWord, Word, words
from oasr_backend.tokenizers.base import Tokenizer


@dataclass
class Rendering:
    """What was made of a request's best hypothesis so far; begun anew when a hypothesis does not continue the last."""

    tokens: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()
    pieces: list[str] = field(default_factory=list)
    joined: str = ""
    settled: list[Word] = field(default_factory=list)
    settled_timed: list[TimedWord] = field(default_factory=list)
    """The settled words in seconds, kept by whoever converts them."""
    settled_tokens: int = 0
    """Tokens before this one belong to settled words and to no other."""

    @classmethod
    def of(cls, hypothesis: Hypothesis, pieces: list[str]) -> "Rendering":
        """Of a hypothesis whose tokens' texts are known."""
        return cls(hypothesis.tokens, hypothesis.frames, pieces, "".join(pieces))

    def follow(self, best: Hypothesis, tokenizer: Tokenizer) -> None:
        """Takes in the pieces of new tokens."""
        known = len(self.tokens)
        continues = best.tokens[:known] == self.tokens
        if not continues:
            self.pieces, self.joined, known = [], "", 0
        if not continues or best.frames[: self.settled_tokens] != self.frames[: self.settled_tokens]:
            self.settled, self.settled_timed, self.settled_tokens = [], [], 0
        new = tokenizer.pieces(best.tokens, known)
        self.pieces += new
        self.joined += "".join(new)
        self.tokens, self.frames = best.tokens, best.frames

    def open_words(self, best: Hypothesis) -> list[Word]:
        """Words behind the settled ones; those that end before the last one, and before the last token, get settled."""
        tail = words(self.pieces, best.frames, best.confidences, self.settled_tokens)
        # The last token may still move, the last word may still grow, and a word ends where the next begins.
        while len(tail) > 1 and tail[0].last_token < tail[1].first_token < len(best.tokens) - 1:
            self.settled.append(tail.pop(0))
            self.settled_tokens = self.settled[-1].last_token + 1
        return tail
