"""A server of four streams: the fifth is refused at once, and refusals cost the others nothing."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    PROTOCOLS,
    RATE,
    SMALL_LIMIT,
    Pipeline,
    Stream,
    Wire,
    all_clips,
    as_pcm,
    clip,
    code_of,
    counter,
    cut,
    eventually,
    gauge,
    inputs_of,
    new_id,
    outcome_of,
    references,
    refusal,
    settled_counter,
    status_of,
    streams_are_back,
    text_of,
    together,
)


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, small_server: RunningServer) -> Iterator[Wire]:
    with Wire(small_server, request.param) as wire:
        yield wire


def opened(wire: Wire, count: int = SMALL_LIMIT) -> list[Stream]:
    """Streams that have sent their first chunk of digits."""
    streams = [Stream(wire) for _ in range(count)]
    for stream in streams:
        stream.send(clip("digits.flac")[:CHUNK])
    return streams


def end_all(streams: list[Stream]) -> None:
    for stream in streams:
        assert stream.send(clip("digits.flac")[CHUNK:], end=True) == references()["digits.flac"]


def test_a_stream_too_many_is_refused_with_the_numbers_and_the_others_go_on(wire: Wire) -> None:
    streams = opened(wire)
    fifth = Stream(wire)
    error = refusal(lambda: fifth.send(clip("command.flac")))
    assert status_of(error) == "UNAVAILABLE"
    assert code_of(error) == "SERVER_FULL"
    assert f"{SMALL_LIMIT} of {SMALL_LIMIT} streams" in error.message()
    assert code_of(refusal(lambda: fifth.send(clip("command.flac")))) == "UNKNOWN_SEQUENCE"
    end_all(streams)
    assert Stream(wire, fifth.id).send(clip("command.flac"), end=True) == references()["command.flac"]


def test_2000_refused_starts_delay_no_later_one(small_server: RunningServer, wire: Wire) -> None:
    streams = opened(wire, SMALL_LIMIT - 1)
    undisturbed = delays_of_first_chunks(wire)
    streams += opened(wire, 1)
    before = settled_counter(small_server, "sequences_refused")
    with Pipeline(small_server) as pipeline:
        # No END follows them, as from a client that gives up.
        for _ in range(2000):
            pipeline.send(new_id(), inputs_of(NOTHING), start=True)
        assert {code_of(answer) for answer in pipeline.answers()} == {"SERVER_FULL"}
    assert eventually(lambda: counter(small_server, "sequences_refused") == before + 2000)
    streams.pop().end()
    delays = delays_of_first_chunks(wire)
    # The best of each, for the machine may be busy with others.
    assert min(delays) < min(undisturbed) + 0.1, (delays, undisturbed)
    end_all(streams)


def delays_of_first_chunks(wire: Wire) -> list[float]:
    """Seconds, of streams that come one after the other."""
    delays = []
    for _ in range(5):
        stream = Stream(wire)
        begin = time.perf_counter()
        stream.send(clip("digits.flac")[:1600])
        delays.append(time.perf_counter() - begin)
        assert stream.send(clip("digits.flac")[1600:], end=True) == references()["digits.flac"]
    return delays


def test_clients_that_try_again_all_get_through(small_server: RunningServer) -> None:
    def persist(name: str) -> str:
        with Wire(small_server) as wire:
            for _ in range(3000):
                outcome = outcome_of(lambda: Stream(wire).play(cut(clip(name), CHUNK))[-1])
                if not isinstance(outcome, Exception):
                    return str(outcome)
                assert code_of(outcome) == "SERVER_FULL"
                time.sleep(0.02)
        raise AssertionError("never admitted")

    names = CLIPS * 5
    assert together(persist, names) == [references()[name] for name in names]


def test_one_request_streams_count_only_while_they_run(small_server: RunningServer, wire: Wire) -> None:
    for name in CLIPS * 4:
        assert Stream(wire).send(clip(name), end=True) == references()[name]
    # More than fit at once: some are served, the others refused, and nothing stays taken.
    with Pipeline(small_server) as pipeline:
        for _ in range(40):
            pipeline.send(new_id(), inputs_of(clip("digits.flac")), start=True, end=True)
        answers = pipeline.answers()
    served = [answer for answer in answers if not isinstance(answer, Exception)]
    assert len(served) >= SMALL_LIMIT
    assert {text_of(answer) for answer in served} == {references()["digits.flac"]}
    assert {code_of(answer) for answer in answers if isinstance(answer, Exception)} <= {"SERVER_FULL"}


def test_a_second_start_of_an_open_stream_needs_no_place(wire: Wire) -> None:
    streams = opened(wire)
    again = Stream(wire, streams[0].id)
    assert again.play(cut(clip("command.flac"), CHUNK))[-1] == references()["command.flac"]
    end_all(streams[1:])


def test_who_sends_too_far_ahead_is_held_back_and_loses_nothing(small_server: RunningServer) -> None:
    """36 s at once where 20 s may wait: what is refused is the rest, and is sent again when answers have come."""
    pieces = cut(as_pcm(np.tile(all_clips(), 5))[: 36 * RATE], 6 * RATE)
    with Wire(small_server) as wire:
        expected = Stream(wire).play(pieces)[-1]
    held_back = settled_counter(small_server, "sequences_held_back")
    sequence_id = new_id()
    sent = refused = 0
    with Pipeline(small_server) as pipeline:
        while sent < len(pieces):
            rest = pieces[sent:]
            for number, piece in enumerate(rest, sent):
                pipeline.send(sequence_id, inputs_of(piece), start=number == 0)
            codes = [code_of(one) if isinstance(one, Exception) else "" for one in (pipeline.next() for _ in rest)]
            taken = codes.count("")
            assert codes == [""] * taken + ["BACK_PRESSURE"] * (len(rest) - taken)
            sent += taken
            refused += len(rest) - taken
        pipeline.send(sequence_id, inputs_of(NOTHING), end=True)
        assert text_of(pipeline.next()) == expected
    assert refused > 0
    assert eventually(lambda: counter(small_server, "sequences_held_back") == held_back + refused)
    assert gauge(small_server, "sequences_queued_seconds_limit") == 60
    assert eventually(lambda: gauge(small_server, "sequences_queued_seconds") == 0)


def test_every_place_is_free_in_the_end(small_server: RunningServer) -> None:
    assert eventually(lambda: streams_are_back(small_server))
    with Wire(small_server) as wire:
        end_all(opened(wire))
