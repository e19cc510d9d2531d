"""Subtitles from a RESULT: cues that can be read, as SRT or WebVTT."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SECONDS = 7.0
MAX_LINE = 42
MAX_LINES = 2
# A pause of so much parts two cues.
_PAUSE_S = 0.8
_MIN_S = 0.5


@dataclass(frozen=True)
class Cue:
    """Text on the screen from `start` to `end`, in seconds."""

    start: float
    end: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class _Word:
    text: str
    start: float
    end: float
    space: bool
    """Whether a space stands before it."""


def cues_of(result: Mapping[str, Any]) -> list[Cue]:
    """Cues of at most 7 s and two lines of 42 characters.

    They are made of words where the RESULT has them (`word_timestamps`), else of segments, whose time is then divided
    by the number of characters.
    """
    cues: list[Cue] = []
    for segment in result.get("segments", ()):
        cues += _of_words(_words(segment))
    return [_held(cue, following) for cue, following in zip(cues, [*cues[1:], None])]


def srt(cues: Iterable[Cue]) -> str:
    """The cues as SubRip."""
    blocks = (
        f"{number}\n{_clock(cue.start, ',')} --> {_clock(cue.end, ',')}\n" + "\n".join(cue.lines) + "\n"
        for number, cue in enumerate(cues, 1)
    )
    return "\n".join(blocks)


def vtt(cues: Iterable[Cue]) -> str:
    """The cues as WebVTT."""
    blocks = (
        f"{_clock(cue.start, '.')} --> {_clock(cue.end, '.')}\n" + "\n".join(map(_escaped, cue.lines)) + "\n"
        for cue in cues
    )
    return "\n".join(["WEBVTT\n", *blocks])


def _words(segment: Mapping[str, Any]) -> list[_Word]:
    text = str(segment["text"])
    found: list[_Word] = []
    if segment.get("words"):
        at = 0
        for word in segment["words"]:
            # The text says where spaces are: scripts without them have words, too.
            place = text.find(word["word"], at)
            space = bool(found) and (place < 0 or text[max(0, place - 1) : place].isspace())
            at = place + len(word["word"]) if place >= 0 else at
            found.append(_Word(word["word"], word["start"], word["end"], space))
        return found
    pieces = text.split()
    if len(pieces) == 1 and len(text) > MAX_LINE:
        pieces = list(text)
    start, length = float(segment["start"]), max(0.0, segment["end"] - segment["start"])
    total = sum(map(len, pieces)) or 1
    done = 0
    for piece in pieces:
        begin = start + length * done / total
        done += len(piece)
        spaced = bool(found) and len(text.split()) > 1
        found.append(_Word(piece, begin, start + length * done / total, spaced))
    return found


def _of_words(words: Sequence[_Word]) -> list[Cue]:
    cues: list[Cue] = []
    taken: list[_Word] = []
    for word in words:
        if taken and (
            word.end - taken[0].start > MAX_SECONDS
            or word.start - taken[-1].end > _PAUSE_S
            or len(_wrapped([*taken, word])) > MAX_LINES
        ):
            cues.append(Cue(taken[0].start, taken[-1].end, _wrapped(taken)))
            taken = []
        taken.append(word)
    if taken:
        cues.append(Cue(taken[0].start, taken[-1].end, _wrapped(taken)))
    return cues


def _wrapped(words: Sequence[_Word]) -> tuple[str, ...]:
    lines = [""]
    for word in words:
        longer = f"{lines[-1]} {word.text}" if word.space and lines[-1] else lines[-1] + word.text
        if lines[-1] and len(longer) > MAX_LINE:
            lines.append(word.text)
        else:
            lines[-1] = longer
    return tuple(lines)


def _held(cue: Cue, following: Cue | None) -> Cue:
    """A cue that stays long enough to be seen, as far as the next one lets it."""
    end = max(cue.end, cue.start + _MIN_S)
    return Cue(cue.start, end if following is None else max(cue.end, min(end, following.start)), cue.lines)


def _clock(seconds: float, point: str) -> str:
    total = max(0, round(seconds * 1000))
    minutes, milliseconds = divmod(total, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}{point}{milliseconds % 1000:03d}"


def _escaped(line: str) -> str:
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
