from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_client.journal import Journal, quietest
from oasr_client.stitching import Anchor, Before, anchor_of, join_texts, shifted, stitched
from oasr_client.told import Told


def segment(text: str, start: float, end: float, endpoint: str | None = None, is_final: bool = True) -> dict[str, Any]:
    document = {"id": 0, "text": text, "start": start, "end": end, "is_final": is_final, "confidence": 0.9}
    return document if endpoint is None else {**document, "endpoint": endpoint}


FIRST = segment("ONE", 0.4, 1.2, "silence")
SECOND = segment("TWO", 3.0, 3.8, "silence")
CUT = segment("THREE", 5.0, 24.9, "length")
LIVE = segment("FOUR", 25.1, 26.0, is_final=False)


def result(*segments: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"text": "", "is_final": False, "segments": list(segments), "audio_seconds": 1.0, **others}


def test_a_result_of_a_second_sequence_becomes_that_of_the_stream() -> None:
    words = [{"word": "TWO", "start": 0.5, "end": 0.9, "confidence": 1.0}]
    document = {
        "text": "TWO",
        "is_final": True,
        "segments": [{**segment("TWO", 0.5, 0.9), "words": words}],
        "audio_seconds": 2.5,
        "alternatives": [{"text": "TWO", "score": -1.0}, {"text": "TOO", "score": -2.0}],
        "speech_events": [{"type": "speech_start", "time": 0.4}],
        "endpoint": {"frame": 25, "time": 1.0, "reason": "silence"},
        "finish_reason": "stop",
    }
    whole = stitched(document, Before((FIRST,), 2.0))
    assert whole["text"] == "ONE TWO"
    assert [(one["id"], one["text"], one["start"], one["end"]) for one in whole["segments"]] == [
        (0, "ONE", 0.4, 1.2),
        (1, "TWO", 2.5, 2.9),
    ]
    assert whole["segments"][1]["words"] == [{"word": "TWO", "start": 2.5, "end": 2.9, "confidence": 1.0}]
    assert whole["audio_seconds"] == 4.5
    assert [one["text"] for one in whole["alternatives"]] == ["ONE TWO", "ONE TOO"]
    assert whole["speech_events"] == [{"type": "speech_start", "time": 2.4}]
    assert whole["endpoint"] == {"frame": 75, "time": 3.0, "reason": "silence"}
    assert (whole["is_final"], whole["finish_reason"]) == (True, "stop")
    # What was given is left as it was.
    assert document["segments"] == [{**segment("TWO", 0.5, 0.9), "words": words}]


def test_a_frame_that_cannot_be_counted_on_is_left_out() -> None:
    document = result(endpoint={"frame": 25, "reason": "silence"})
    assert stitched(document, Before((FIRST,), 2.0))["endpoint"] == {"reason": "silence"}
    assert stitched(document, Before())["endpoint"] == {"frame": 25, "reason": "silence"}


def test_times_are_shifted_wherever_they_are() -> None:
    assert shifted([{"start": 1, "x": {"end": 0.5, "time": 2.0, "n": 3}}, "start"], 1.5) == [
        {"start": 2.5, "x": {"end": 2.0, "time": 3.5, "n": 3}},
        "start",
    ]


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["ONE", "", "TWO"], "ONE TWO"),
        (["", "TWO"], "TWO"),
        (["你好", "世界"], "你好世界"),
        (["你好", "OK"], "你好OK"),
        ([], ""),
    ],
)
def test_texts_are_joined_as_the_server_joins_segments(texts: list[str], joined: str) -> None:
    from oasr_backend.engine.transcript import join_texts as by_server

    assert join_texts(texts) == by_server(texts) == joined


def test_without_endpoints_a_replay_begins_at_the_start() -> None:
    assert anchor_of(result(segment("ONE", 0.4, 1.2, is_final=False)), 3.0, 600) is None
    # All segments of a stream that has ended are final, with or without endpoints.
    assert anchor_of(result(segment("ONE", 0.4, 1.2)), 30.0, 600) is None


def test_a_replay_begins_in_the_pause_behind_a_final_segment() -> None:
    assert anchor_of(result(FIRST), 2.3, 600) == Anchor(1.2, pytest.approx(1.6), (FIRST,))
    assert anchor_of(result(FIRST), 1.4, 600) == Anchor(1.2, 1.4, (FIRST,))


def test_where_speech_goes_on_a_replay_begins_shortly_before_it() -> None:
    live = segment("TWO", 3.0, 3.5, is_final=False)
    assert anchor_of(result(FIRST, live), 3.6, 600) == Anchor(pytest.approx(2.4), pytest.approx(2.8), (FIRST,))
    near = segment("TWO", 1.5, 1.9, is_final=False)
    assert anchor_of(result(FIRST, near), 3.6, 600) == Anchor(1.2, pytest.approx(1.3), (FIRST,))
    at_once = segment("TWO", 1.2, 1.9, is_final=False)
    assert anchor_of(result(FIRST, at_once), 3.6, 600) == Anchor(1.2, 1.2, (FIRST,))


def test_a_segment_that_was_cut_for_its_length_serves_only_where_the_pause_is_too_long_ago() -> None:
    document = result(FIRST, SECOND, CUT, LIVE)
    anchor = anchor_of(document, 27.0, 600)
    assert anchor is not None
    assert anchor.segments == (FIRST, SECOND)
    assert anchor.low == pytest.approx(4.4)
    anchor = anchor_of(document, 27.0, 20)
    assert anchor is not None
    assert anchor.segments == (FIRST, SECOND, CUT)
    assert anchor.low == pytest.approx(24.9)
    assert anchor_of(result(CUT, LIVE), 27.0, 600) is None


def test_silence_moves_the_place_on() -> None:
    assert anchor_of(result(FIRST), 60.0, 600) == Anchor(55.0, 55.0, (FIRST,))
    assert anchor_of(result(), 60.0, 600, endpointing=True) == Anchor(55.0, 55.0, ())
    assert anchor_of(result(), 60.0, 600) is None
    # Where nothing in progress is told of, none need be there.
    assert anchor_of(result(FIRST), 60.0, 600, partials=False) == Anchor(1.2, pytest.approx(1.6), (FIRST,))


@given(
    sizes=st.lists(st.integers(0, 50), max_size=20),
    limit=st.integers(1, 200),
    cuts=st.lists(st.integers(0, 500), max_size=5),
)
def test_a_journal_holds_what_was_sent_last(sizes: list[int], limit: int, cuts: list[int]) -> None:
    journal, everything = Journal(limit), np.zeros(0, dtype=np.int16)
    for number, size in enumerate(sizes):
        chunk = np.arange(everything.size, everything.size + size, dtype=np.int16)
        everything = np.concatenate([everything, chunk])
        journal.append(chunk)
        chunk[:] = -1
        if number < len(cuts):
            journal.forget_before(cuts[number])
        assert journal.end == everything.size
        assert journal.end - journal.first <= limit
        middle = (journal.first + journal.end) // 2
        assert np.array_equal(journal.read(journal.first, journal.end), everything[journal.first :])
        assert np.array_equal(journal.read(middle, journal.end), everything[middle:])
    with pytest.raises(IndexError):
        journal.read(0, journal.end + 1)


def test_a_replay_begins_where_it_is_quietest() -> None:
    rate = 16_000
    rng = np.random.default_rng(0)
    samples = (rng.standard_normal(3 * rate) * 3000).astype(np.int16)
    quiet = slice(round(1.3 * rate), round(1.6 * rate))
    samples[quiet] = (samples[quiet] / 100).astype(np.int16)
    journal = Journal(10 * rate)
    journal.append(samples)
    place = quietest(journal.read, rate, 2 * rate, journal.end, rate)
    assert 1.34 * rate <= place <= 1.56 * rate
    assert place % 640 == 0
    assert quietest(journal.read, rate, rate, journal.end, rate) == rate
    # In silence, halfway between the words.
    silence = Journal(10 * rate)
    silence.append(np.zeros(3 * rate, dtype=np.int16))
    assert quietest(silence.read, rate, 2 * rate, silence.end, rate) == pytest.approx(1.5 * rate, abs=640)


def test_events_of_a_replay_are_told_once() -> None:
    def heard(*times: float) -> dict[str, Any]:
        return result(speech_events=[{"type": "speech_start", "time": time} for time in times])

    def told_in(answer: dict[str, Any]) -> list[float]:
        told.hear(answer)
        return [event["time"] for event in told.response(answer)["speech_events"]]

    told = Told()
    assert told_in(heard(0.4, 0.5)) == [0.4, 0.5]
    told.begin_replay()
    told.hear(heard(0.44, 0.54))
    # Its answer was lost.
    told.hear(heard(2.0))
    assert told_in(heard(3.0)) == [2.0, 3.0]
    assert told_in(heard()) == []
    told.begin_replay()
    told.begin_replay()
    told.hear(heard(0.4, 0.5, 2.04, 3.04))
    assert told_in(heard(3.5)) == [3.5]


def test_endpoints_of_a_replay_are_told_once() -> None:
    endpoint = {"reason": "silence"}
    told = Told()
    first = result(FIRST, endpoint=endpoint)
    told.hear(first)
    assert told.response(first)["endpoint"] == endpoint
    told.begin_replay()
    told.hear(first)
    assert "endpoint" not in told.response(result(FIRST))
    told.begin_replay()
    told.hear(result(FIRST, SECOND, endpoint=endpoint))
    assert told.response(result(FIRST, SECOND))["endpoint"] == endpoint
