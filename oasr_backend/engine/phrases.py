"""Hotwords as token sequences."""

from collections.abc import Sequence

from oasr_backend.decode.hotwords import HotwordGraph, build_graph
from oasr_backend.engine.options import Hotword
from oasr_backend.tokenizers.base import Tokenizer

# Warnings come with every result: so many phrases are named, the others counted.
_MOST_NAMED = 20


def hotword_graph(
    hotwords: Sequence[Hotword], default_score: float, tokenizer: Tokenizer
) -> tuple[HotwordGraph | None, list[str]]:
    """The automaton of the phrases that can be spelt (None without any), and those that cannot."""
    phrases: list[tuple[Sequence[int], float]] = []
    unspelt: list[str] = []
    for hotword in hotwords:
        tokens = tokenizer.spell(hotword.phrase)
        if tokens:
            phrases.append((tokens, default_score if hotword.score is None else hotword.score))
        else:
            unspelt.append(hotword.phrase)
    return (build_graph(phrases) if phrases else None), unspelt


def unspelt_warnings(phrases: Sequence[str]) -> list[str]:
    """What a user is told of phrases that the model's units cannot spell."""
    warnings = [f"hotword {phrase!r} cannot be spelt with this model's units" for phrase in phrases[:_MOST_NAMED]]
    if len(phrases) > _MOST_NAMED:
        warnings.append(f"{len(phrases) - _MOST_NAMED} more hotwords cannot be spelt with this model's units")
    return warnings
