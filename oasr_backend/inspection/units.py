"""What the units of a vocabulary are, by the look of them."""

from collections.abc import Iterable

from oasr_backend.decode.words import stands_alone

_WORD_START = "▁"
_PIECE_GOES_ON = "@@"


def kind_of_units(units: Iterable[str]) -> str:
    """`BPE pieces`, `characters`, both or `words`; special units like <blank> do not count."""
    plain = [unit for unit in units if not (unit.startswith("<") and unit.endswith(">")) and unit != _WORD_START]
    pieces = sum(len(unit) > 1 and (unit.startswith(_WORD_START) or unit.endswith(_PIECE_GOES_ON)) for unit in plain)
    alone = sum(len(unit) == 1 and stands_alone(unit) for unit in plain)
    if pieces:
        return "characters and BPE pieces" if alone > pieces else "BPE pieces"
    return "characters" if 2 * sum(len(unit) == 1 for unit in plain) >= len(plain) else "words"
