"""Times of tokens and words, as pure rules on frames."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

# A token that follows a pause starts at most this many frames before its peak.
_MAX_LEAD = 5
# A word sounds on for up to as many frames behind the peak of its last token.
_MAX_TAIL = 3
# Scripts written without spaces: each character is a word of its own.
_ALONE = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HANGUL")


@dataclass(frozen=True)
class Word:
    """A word and the frames [start, end) that it fills; `confidence` is the mean posterior of its tokens."""

    text: str
    start: int
    end: int
    confidence: float
    first_token: int
    last_token: int


@dataclass(frozen=True)
class TimedWord:
    """A word with its times in seconds from the start of the audio."""

    word: str
    start: float
    end: float
    confidence: float


def token_spans(peaks: Sequence[int], previous: int = -1) -> list[tuple[int, int]]:
    """Frames [start, end) of each token, given the frame of its peak; `previous` is that of the token before them.

    A token ends with its peak's frame and starts after the last token's, but no more than five frames before its peak.
    """
    spans = []
    last = previous
    for peak in peaks:
        spans.append((max(last + 1, peak - _MAX_LEAD, 0), peak + 1))
        last = peak
    return spans


@lru_cache(maxsize=1 << 16)
def stands_alone(character: str) -> bool:
    """Whether a character is a word by itself (CJK, kana, Hangul)."""
    return unicodedata.name(character, "").startswith(_ALONE)


def needs_space(left: str, right: str) -> bool:
    """Whether two texts need a space between them: not beside a space, nor between characters that stand alone."""
    if not left or not right or left[-1].isspace() or right[0].isspace():
        return False
    return not (stands_alone(left[-1]) or stands_alone(right[0]))


def words(
    pieces: Sequence[str], peaks: Sequence[int], confidences: Sequence[float], first_token: int = 0
) -> list[Word]:
    """Words of the text that `pieces` join to, one piece a token, from `first_token` on.

    A word is one character of a script without spaces, or a run of other characters without a space; it belongs to
    every token that holds one of its characters. It ends up to three frames behind the peak of its last token.
    """
    previous = peaks[first_token - 1] if first_token else -1
    spans = token_spans(peaks[first_token:], previous)
    found: list[Word] = []
    letters: list[str] = []
    owners: list[int] = []

    def close() -> None:
        if letters:
            tokens = sorted(set(owners))
            found.append(
                Word(
                    text="".join(letters),
                    start=min(spans[token - first_token][0] for token in tokens),
                    end=max(spans[token - first_token][1] for token in tokens),
                    confidence=sum(confidences[token] for token in tokens) / len(tokens),
                    first_token=tokens[0],
                    last_token=tokens[-1],
                )
            )
            letters.clear()
            owners.clear()

    for token in range(first_token, len(pieces)):
        for character in pieces[token]:
            if character.isspace() or stands_alone(character):
                close()
            if not character.isspace():
                letters.append(character)
                owners.append(token)
                if stands_alone(character):
                    close()
    close()
    return [_sounding_on(word, following) for word, following in zip_longest(found, found[1:])]


def extent(peaks: Sequence[int]) -> tuple[int, int]:
    """Frames [start, end) of a text, given the peaks of its tokens."""
    return token_spans(peaks[:1])[0][0], peaks[-1] + 1 + _MAX_TAIL


def _sounding_on(word: Word, following: Word | None) -> Word:
    """A word with the frames behind the peak of its last token, as far as the next word leaves them."""
    end = word.end + _MAX_TAIL
    return replace(word, end=end if following is None else max(word.end, min(end, following.start)))
