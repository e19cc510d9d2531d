"""When a segment ends: to the frame, for each of the three reasons."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.endpoint import Endpointer, EndpointRule, SpeechEvent

FRAME_S = 0.04
SPEECH, SILENCE = 0.1, 0.99
NEVER = EndpointRule(math.inf, math.inf, math.inf)


def ends(endpointer: Endpointer, frames: list[float]) -> list[tuple[int, str]]:
    """(frames of the stream, reason) of every endpoint."""
    return [(count, reason) for count, frame in enumerate(frames, 1) if (reason := endpointer.feed(frame))]


def endpointer(rule: EndpointRule | None = None) -> Endpointer:
    return Endpointer(rule or EndpointRule(), FRAME_S)


def test_silence_after_speech_ends_a_segment_on_its_25th_frame() -> None:
    assert ends(endpointer(), [SPEECH] * 10 + [SILENCE] * 24) == []
    assert ends(endpointer(), [SPEECH] * 10 + [SILENCE] * 25) == [(35, "silence")]


def test_silence_before_any_speech_ends_a_segment_on_its_125th_frame() -> None:
    assert ends(endpointer(), [SILENCE] * 124) == []
    assert ends(endpointer(), [SILENCE] * 250) == [(125, "no_speech"), (250, "no_speech")]


def test_the_longest_segment_has_500_frames() -> None:
    assert ends(endpointer(), [SPEECH] * 499) == []
    # Within speech it waits two seconds for a frame without.
    assert ends(endpointer(), [SPEECH] * 1101) == [(550, "length"), (1100, "length")]
    assert ends(endpointer(), [SPEECH] * 510 + [SILENCE]) == [(511, "length")]
    assert ends(endpointer(), ([SPEECH] + [SILENCE] * 23) * 21) == [(500, "length")]


def test_speech_begins_the_silence_anew() -> None:
    frames = [SPEECH] + [SILENCE] * 24 + [SPEECH] + [SILENCE] * 25
    assert ends(endpointer(), frames) == [(51, "silence")]


def test_late_speech_turns_off_the_first_reason() -> None:
    assert ends(endpointer(), [SILENCE] * 124 + [SPEECH] + [SILENCE] * 25) == [(150, "silence")]


def test_a_segment_knows_nothing_of_the_one_before() -> None:
    """Behind a silence there is no speech yet, so the next silence may last five seconds."""
    frames = [SPEECH] + [SILENCE] * 25 + [SILENCE] * 124
    assert ends(endpointer(), frames) == [(26, "silence")]
    assert ends(endpointer(), [*frames, SILENCE]) == [(26, "silence"), (151, "no_speech")]


@pytest.mark.parametrize(("probability", "is_speech"), [(0.0, True), (0.8, True), (0.8001, False), (1.0, False)])
def test_a_frame_speaks_when_its_blank_is_no_more_probable_than_four_fifths(
    probability: float, is_speech: bool
) -> None:
    found = endpointer()
    found.feed(probability)
    assert found.heard_speech == is_speech and found.trailing == (0 if is_speech else 1)


@pytest.mark.parametrize(
    ("rule", "frames", "expected"),
    [
        (EndpointRule(silence_seconds=0.2), [SPEECH] + [SILENCE] * 5, [(6, "silence")]),
        (EndpointRule(silence_seconds=0.21), [SPEECH] + [SILENCE] * 6, [(7, "silence")]),
        (EndpointRule(start_seconds=0.4), [SILENCE] * 10, [(10, "no_speech")]),
        (EndpointRule(max_seconds=0.6), [SPEECH] * 14 + [SILENCE], [(15, "length")]),
        # A bound below a frame is met by one frame.
        (EndpointRule(silence_seconds=0.001), [SPEECH, SILENCE], [(2, "silence")]),
        (EndpointRule(start_seconds=0.001), [SILENCE], [(1, "no_speech")]),
        (EndpointRule(max_seconds=0.001), [SILENCE], [(1, "length")]),
    ],
)
def test_each_bound_may_be_given(rule: EndpointRule, frames: list[float], expected: list[tuple[int, str]]) -> None:
    assert ends(endpointer(rule), frames[:-1]) == []
    assert ends(endpointer(rule), frames) == expected


def test_silence_is_the_reason_where_the_length_is_met_too() -> None:
    assert ends(endpointer(EndpointRule(9, 0.4, 0.8)), [SPEECH] * 10 + [SILENCE] * 10) == [(20, "silence")]


def test_without_bounds_nothing_ends() -> None:
    assert ends(endpointer(NEVER), [SPEECH] * 600 + [SILENCE] * 600) == []


GRACE = 50


def plain(frames: list[bool], start: int, silence: int, longest: int) -> list[tuple[int, str]]:
    """The three rules from their definition, bounds in frames."""
    found, first = [], 0
    for end in range(1, len(frames) + 1):
        segment = frames[first:end]
        trailing = segment[::-1].index(True) if any(segment) else len(segment)
        if any(segment) and trailing >= silence:
            found.append((end, "silence"))
        elif not any(segment) and trailing >= start:
            found.append((end, "no_speech"))
        elif len(segment) >= longest and (trailing or len(segment) >= longest + GRACE):
            found.append((end, "length"))
        else:
            continue
        first = end
    return found


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 20), st.integers(1, 8), st.integers(1, 40))
def test_segments_end_where_the_rules_say(speech: list[bool], start: int, silence: int, longest: int) -> None:
    rule = EndpointRule(start * FRAME_S, silence * FRAME_S, longest * FRAME_S)
    found = endpointer(rule)
    assert ends(found, [SPEECH if one else SILENCE for one in speech]) == plain(speech, start, silence, longest)
    assert found.frames == len(speech)


def events(endpointer: Endpointer, frames: list[float]) -> list[tuple[str, int]]:
    for frame in frames:
        endpointer.feed(frame)
    return [(event.kind, event.frame) for event in endpointer.take_events()]


def test_speech_starts_and_ends_where_it_is_heard() -> None:
    """The end is told once the silence is long enough, and lies where it began."""
    found = endpointer()
    assert events(found, [SILENCE] * 3 + [SPEECH] * 4) == [("speech_start", 3)]
    assert events(found, [SILENCE] * 24) == []
    assert events(found, [SILENCE]) == [("speech_end", 7)]
    assert events(found, [SILENCE] * 40 + [SPEECH]) == [("speech_start", 72)]


def test_a_short_pause_is_no_end_of_speech() -> None:
    assert events(endpointer(), [SPEECH] + [SILENCE] * 24 + [SPEECH] + [SILENCE] * 25) == [
        ("speech_start", 0),
        ("speech_end", 26),
    ]


def test_the_longest_segment_ends_the_speech_in_it() -> None:
    found = events(endpointer(EndpointRule(max_seconds=0.4)), [SPEECH] * 65)
    assert found == [("speech_start", 0), ("speech_end", 60), ("speech_start", 60)]


def test_events_come_without_endpoints_too() -> None:
    rule = EndpointRule(math.inf, 0.2, math.inf)
    assert events(Endpointer(rule, FRAME_S), [SPEECH] * 2 + [SILENCE] * 5 + [SPEECH]) == [
        ("speech_start", 0),
        ("speech_end", 2),
        ("speech_start", 7),
    ]


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 20), st.integers(1, 8), st.integers(1, 40))
def test_starts_and_ends_alternate_and_time_goes_on(speech: list[bool], start: int, silence: int, longest: int) -> None:
    found = endpointer(EndpointRule(start * FRAME_S, silence * FRAME_S, longest * FRAME_S))
    taken = events(found, [SPEECH if one else SILENCE for one in speech])
    assert [kind for kind, _ in taken] == [("speech_start", "speech_end")[index % 2] for index in range(len(taken))]
    frames = [frame for _, frame in taken]
    assert frames == sorted(frames)
    for (kind, before), (_, after) in pairwise(taken):
        # All of it is told: between them lies speech, or no frame of it.
        assert any(speech[before:after]) == (kind == "speech_start")
    assert all(speech[frame] for kind, frame in taken if kind == "speech_start")
    assert bool(taken) == any(speech)
    assert found.take_events() == []


def test_frames_that_come_again_are_counted_again() -> None:
    found = endpointer()
    assert ends(found, [SPEECH] * 5 + [SILENCE] * 25) == [(30, "silence")]
    found.take_events()
    found.rewind(8)
    assert (found.frames, found.silence) == (22, 17)
    assert events(found, [SILENCE] * 8 + [SPEECH]) == [("speech_start", 30)]
    # They are part of the new segment.
    assert found.segment_frames == 9


def test_frames_that_come_again_within_a_segment_end_nothing_twice() -> None:
    found = endpointer()
    ends(found, [SPEECH] * 5 + [SILENCE] * 20)
    found.rewind(6)
    assert (found.frames, found.segment_frames, found.trailing, found.silence) == (19, 19, 14, 14)
    assert ends(found, [SILENCE] * 25) == [(11, "silence")]


def test_silence_is_counted_over_segments() -> None:
    found = endpointer()
    assert len(ends(found, [SPEECH] + [SILENCE] * (25 + 125 + 7))) == 2
    assert found.silence == 157
    found.feed(SPEECH)
    assert found.silence == 0


@pytest.mark.parametrize(
    ("frames", "rule", "silent"),
    [
        ([SPEECH] * 3 + [SILENCE] * 25, EndpointRule(), 25),
        ([SILENCE] * 125, EndpointRule(), 125),
        ([SPEECH] * 9 + [SILENCE], EndpointRule(max_seconds=0.4), 1),
        ([SPEECH] * 60, EndpointRule(max_seconds=0.4), 0),
    ],
)
def test_it_is_known_how_long_the_end_of_a_segment_was_silent(
    frames: list[float], rule: EndpointRule, silent: int
) -> None:
    found = endpointer(rule)
    assert len(ends(found, frames)) == 1
    assert found.silence == silent
    assert (found.segment_frames, found.trailing, found.heard_speech) == (0, 0, False)


def test_events_are_taken_once() -> None:
    found = endpointer()
    found.feed(SPEECH)
    assert found.take_events() == [SpeechEvent("speech_start", 0)]
    assert found.take_events() == []
