import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_client.subtitles import MAX_LINE, MAX_LINES, MAX_SECONDS, Cue, cues_of, srt, vtt


def result(*words: tuple[str, float, float], text: str | None = None) -> dict[str, Any]:
    timed = [{"word": word, "start": start, "end": end} for word, start, end in words]
    text = " ".join(word for word, _, _ in words) if text is None else text
    return {"segments": [{"text": text, "start": words[0][1], "end": words[-1][2], "words": timed}]}


def test_a_short_text_is_one_cue() -> None:
    cues = cues_of(result(("HELLO", 0.5, 0.9), ("WORLD", 1.0, 1.6)))
    assert cues == [Cue(0.5, 1.6, ("HELLO WORLD",))]
    assert srt(cues) == "1\n00:00:00,500 --> 00:00:01,600\nHELLO WORLD\n"
    assert vtt(cues) == "WEBVTT\n\n00:00:00.500 --> 00:00:01.600\nHELLO WORLD\n"


def test_a_pause_parts_cues() -> None:
    assert [cue.lines for cue in cues_of(result(("A", 0.0, 0.9), ("B", 2.0, 2.9)))] == [("A",), ("B",)]


def test_cues_of_several_segments_are_numbered_through() -> None:
    first, second = result(("A", 0.0, 0.9)), result(("B", 3661.0, 3662.5))
    shown = srt(cues_of({"segments": first["segments"] + second["segments"]}))
    assert shown == ("1\n00:00:00,000 --> 00:00:00,900\nA\n\n2\n01:01:01,000 --> 01:01:02,500\nB\n")


def test_scripts_without_spaces_have_none() -> None:
    assert cues_of(result(("你", 0.0, 0.2), ("好", 0.2, 0.8), text="你好"))[0].lines == ("你好",)


def test_without_words_the_segment_is_divided_by_its_characters() -> None:
    segment = {"text": " ".join(["WORD"] * 40), "start": 0.0, "end": 20.0}
    cues = cues_of({"segments": [segment]})
    assert " ".join(line for cue in cues for line in cue.lines) == segment["text"]
    assert (cues[0].start, cues[-1].end) == (0.0, 20.0)
    assert len(cues) == 3
    (cue, *_) = cues_of({"segments": [{"text": "字" * 100, "start": 0.0, "end": 10.0}]})
    assert cue.lines == ("字" * 42, "字" * 27) or all(len(line) <= MAX_LINE for line in cue.lines)


def test_markup_is_escaped_where_it_would_be_read() -> None:
    cues = [Cue(0.0, 1.0, ("<i> & co",))]
    assert "&lt;i&gt; &amp; co" in vtt(cues)
    assert "<i> & co" in srt(cues)


def test_nothing_is_no_cue() -> None:
    assert srt(cues_of({"segments": []})) == ""
    assert vtt(cues_of({"segments": []})) == "WEBVTT\n"


@given(
    st.lists(
        st.tuples(st.text("ABC", min_size=1, max_size=14), st.floats(0.05, 2.0), st.floats(0.0, 1.5)),
        min_size=1,
        max_size=60,
    )
)
def test_cues_can_be_read(rows: list[tuple[str, float, float]]) -> None:
    words, at = [], 0.0
    for text, length, pause in rows:
        words.append((text, at, at + length))
        at += length + pause
    cues = cues_of(result(*words))
    assert " ".join(line for cue in cues for line in cue.lines) == " ".join(text for text, _, _ in words)
    for cue, following in zip(cues, [*cues[1:], None]):
        assert 1 <= len(cue.lines) <= MAX_LINES
        assert all(len(line) <= MAX_LINE for line in cue.lines)
        assert 0 < cue.end - cue.start <= MAX_SECONDS + 1e-6
        assert following is None or cue.end <= following.start + 1e-6
    assert len(re.findall("-->", srt(cues))) == len(cues)


def test_a_short_cue_is_held_as_far_as_the_next_one_lets_it() -> None:
    cues = cues_of(result(("A", 0.0, 0.1), ("B", 1.0, 1.1)))
    assert [cue.end for cue in cues] == pytest.approx([0.5, 1.5])
