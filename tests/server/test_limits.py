"""A server of four streams: the fifth is refused at once, and refusals cost the others nothing."""

import statistics
import time
from collections.abc import Iterator

import pytest

from oasr_backend.serve import RunningServer, running_server
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    PROTOCOLS,
    STREAMING,
    Pipeline,
    Stream,
    Wire,
    clip,
    code_of,
    counter,
    cut,
    eventually,
    inputs_of,
    new_id,
    outcome_of,
    references,
    refusal,
    status_of,
    streams_are_back,
    text_of,
    together,
)

LIMIT = 4


@pytest.fixture(scope="module")
def small_server(tritonserver: None) -> Iterator[RunningServer]:
    environment = {"OASR_DTYPE": "float32"}
    with running_server(
        models=(STREAMING,), max_sequences=LIMIT, environment=environment, ready_timeout_s=240, exit_timeout_s=2
    ) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def wire(request: pytest.FixtureRequest, small_server: RunningServer) -> Iterator[Wire]:
    with Wire(small_server, request.param) as wire:
        yield wire


def opened(wire: Wire, count: int = LIMIT) -> list[Stream]:
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
    assert f"{LIMIT} of {LIMIT} streams" in error.message()
    assert code_of(refusal(lambda: fifth.send(clip("command.flac")))) == "UNKNOWN_SEQUENCE"
    end_all(streams)
    assert Stream(wire, fifth.id).send(clip("command.flac"), end=True) == references()["command.flac"]


def test_2000_refused_starts_delay_no_later_one(small_server: RunningServer, wire: Wire) -> None:
    streams = opened(wire)
    before = counter(small_server, "sequences_refused")
    with Pipeline(small_server) as pipeline:
        # No END follows them, as from a client that gives up.
        for _ in range(2000):
            pipeline.send(new_id(), inputs_of(NOTHING), start=True)
        assert {code_of(answer) for answer in pipeline.answers()} == {"SERVER_FULL"}
    assert eventually(lambda: counter(small_server, "sequences_refused") == before + 2000)
    streams.pop().end()
    delays = []
    for _ in range(5):
        late = Stream(wire)
        begin = time.perf_counter()
        late.send(clip("digits.flac")[:1600])
        delays.append(time.perf_counter() - begin)
        assert late.send(clip("digits.flac")[1600:], end=True) == references()["digits.flac"]
    assert statistics.median(delays) < 0.1, delays
    end_all(streams)


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
    assert len(served) >= LIMIT
    assert {text_of(answer) for answer in served} == {references()["digits.flac"]}
    assert {code_of(answer) for answer in answers if isinstance(answer, Exception)} <= {"SERVER_FULL"}


def test_a_second_start_of_an_open_stream_needs_no_place(wire: Wire) -> None:
    streams = opened(wire)
    again = Stream(wire, streams[0].id)
    assert again.play(cut(clip("command.flac"), CHUNK))[-1] == references()["command.flac"]
    end_all(streams[1:])


def test_every_place_is_free_in_the_end(small_server: RunningServer) -> None:
    assert eventually(lambda: streams_are_back(small_server))
    with Wire(small_server) as wire:
        end_all(opened(wire))
