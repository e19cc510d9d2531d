"""Words out of pieces, as pure rules."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.base import Hypothesis
from oasr_backend.decode.words import Word, token_spans, words
from oasr_backend.engine.rendering import Rendering
from oasr_backend.tokenizers.base import Tokenizer


def test_a_word_spans_its_pieces() -> None:
    assert words([" HEL", "LO", " WORLD"], [10, 12, 30], [0.5, 1.0, 0.75]) == [
        Word("HELLO", 5, 16, 0.75, 0, 1),
        Word("WORLD", 25, 34, 0.75, 2, 2),
    ]


def test_characters_of_scripts_without_spaces_are_words() -> None:
    found = words(["今", "天A", "B", "かな"], [2, 5, 7, 9], [1.0, 0.5, 0.7, 0.8])
    assert [word.text for word in found] == ["今", "天", "AB", "か", "な"]
    assert [(word.start, word.end) for word in found] == [(0, 3), (3, 6), (3, 8), (8, 10), (8, 13)]


def test_special_tokens_have_no_word() -> None:
    assert words(["", " A", ""], [1, 5, 9], [1.0, 0.5, 1.0]) == [Word("A", 2, 9, 0.5, 1, 1)]
    assert words([], [], []) == []


@given(st.lists(st.tuples(st.text(alphabet="ab 今か", max_size=4), st.integers(1, 9), st.floats(0.01, 1)), max_size=12))
def test_no_letter_is_lost_and_times_never_run_back(tokens: list[tuple[str, int, float]]) -> None:
    pieces = [piece for piece, _, _ in tokens]
    peaks, last = [], -1
    for _, gap, _ in tokens:
        last += gap
        peaks.append(last)
    found = words(pieces, peaks, [confidence for *_, confidence in tokens])
    assert "".join(word.text for word in found) == "".join("".join(pieces).split())
    spans = token_spans(peaks)
    assert all(0 <= start < end for start, end in spans)
    for word, following in itertools.pairwise(found):
        assert word.start <= following.start
        assert word.end <= following.end


class Letters(Tokenizer):
    """Pieces by number."""

    def piece(self, token: int) -> str:
        return ("", " A", "B", " 今", "か", " ", "C D", "E ")[token]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), max_size=20), st.data())
def test_a_growing_hypothesis_gives_what_one_shot_gives(tokens: list[tuple[int, int]], data: st.DataObject) -> None:
    """Tokens come one by one, the last one's frame may move, and now and then an earlier one changes altogether."""
    rendering = Rendering()
    grown: list[int] = []
    frames: list[int] = []
    for token, gap in tokens:
        if grown and data.draw(st.integers(0, 9)) == 0:
            grown[data.draw(st.integers(0, len(grown) - 1))] = token
        if frames and data.draw(st.booleans()):
            frames[-1] += 1
        grown.append(token)
        frames.append((frames[-1] if frames else -1) + gap)
        best = Hypothesis(tuple(grown), tuple(frames), tuple(0.5 for _ in grown))
        rendering.follow(best, Letters())
        pieces = [Letters().piece(one) for one in grown]
        assert rendering.joined == "".join(pieces)
        still_open = rendering.open_words(best)
        assert [*rendering.settled, *still_open] == words(pieces, frames, best.confidences)
