"""Word and character error rates of transcripts against what was said."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from oasr_client.errors import MissingExtra

NORMALIZERS = ("basic", "none")
_TOLD = {"basic": "case and punctuation ignored", "none": "compared as they are"}


@dataclass(frozen=True)
class ErrorRate:
    """Errors of all utterances together.

    Attributes:
        unit: "word" or "character" (spaces do not count as characters).
        utterances: how many were compared.
        units: units of the references.
        substitutions, deletions, insertions: errors by kind.
        normalizer: one of `NORMALIZERS`.
    """

    unit: str
    utterances: int
    units: int
    substitutions: int
    deletions: int
    insertions: int
    normalizer: str

    @property
    def errors(self) -> int:
        """Errors of every kind."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def percent(self) -> float:
        """Errors per hundred units of the references."""
        return 100.0 * self.errors / self.units if self.units else 0.0

    @property
    def line(self) -> str:
        """The rate as one line."""
        name = "WER" if self.unit == "word" else "CER"
        return (
            f"{name} {self.percent:.2f} %: {self.errors} errors ({self.substitutions} substituted, {self.deletions} "
            f"deleted, {self.insertions} inserted) in {self.units} {self.unit}s of {self.utterances} utterances, "
            f"{_TOLD[self.normalizer]}"
        )


def error_rates(pairs: Sequence[tuple[str, str]], normalizer: str) -> tuple[ErrorRate, ErrorRate]:
    """Word and character error rate, pooled over all (reference, transcript) pairs.

    Raises:
        MissingExtra: jiwer is not installed.
    """
    try:
        import jiwer
    except ImportError as error:
        raise MissingExtra('error rates need jiwer: pip install "oasr-triton[score]"') from error
    normal = [(normalized(left, normalizer), normalized(right, normalizer)) for left, right in pairs]
    words = _pooled("word", normal, jiwer.process_words, lambda text: len(text.split()), normalizer)
    bare = [("".join(left.split()), "".join(right.split())) for left, right in normal]
    return words, _pooled("character", bare, jiwer.process_characters, len, normalizer)


def normalized(text: str, normalizer: str) -> str:
    """A text as it is compared: "basic" folds case and drops punctuation, and both join runs of spaces."""
    if normalizer == "basic":
        folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
        # An apostrophe belongs to its word.
        text = "".join(" " if _is_punctuation(one) else one for one in folded)
    return " ".join(text.split())


def _is_punctuation(character: str) -> bool:
    return character != "'" and unicodedata.category(character).startswith("P")


def _pooled(
    unit: str,
    pairs: Iterable[tuple[str, str]],
    process: Callable[[list[str], list[str]], Any],
    count: Callable[[str], int],
    normalizer: str,
) -> ErrorRate:
    rows = list(pairs)
    spoken = [(left, right) for left, right in rows if left]
    # Where nothing was said, everything is inserted; the library takes no empty reference.
    inserted = sum(count(right) for left, right in rows if not left)
    substitutions = deletions = insertions = hits = 0
    if spoken:
        found = process([left for left, _ in spoken], [right for _, right in spoken])
        substitutions, deletions = found.substitutions, found.deletions
        insertions, hits = found.insertions, found.hits
    units = hits + substitutions + deletions
    return ErrorRate(unit, len(rows), units, substitutions, deletions, insertions + inserted, normalizer)
