"""Where two texts differ."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from oasr_backend.decode.words import stands_alone


@dataclass(frozen=True)
class Difference:
    """What one text has and what the other has in its place; empty where there is nothing."""

    left: str
    right: str


def differences(left: str, right: str) -> list[Difference]:
    """Word by word, in scripts without spaces character by character."""
    lefts, rights = list(_words(left)), list(_words(right))
    matcher = SequenceMatcher(None, lefts, rights, autojunk=False)
    return [
        Difference(" ".join(lefts[a:b]), " ".join(rights[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]


def _words(text: str) -> Iterator[str]:
    for word in text.split():
        part = ""
        for character in word:
            if not stands_alone(character):
                part += character
                continue
            if part:
                yield part
            yield character
            part = ""
        if part:
            yield part
