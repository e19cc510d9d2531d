"""Requests that a client takes back: streams are freed soon when nothing follows and unharmed when something does,
clips are not decoded."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from tests.server.support import (
    CHUNK,
    OFFLINE,
    RATE,
    STREAMING,
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
    settled,
    settled_counter,
    streams_are_back,
    text_of,
)

# Keeps the engine busy for longer than it takes to cancel.
LONG = np.tile(as_pcm(all_clips()), 40)[: 240 * RATE]
# Far below the 60 s after which any silent stream is freed.
SOON_S = 30.0


def cancel(wire: Wire, sequence_id: int, samples: np.ndarray, start: bool) -> None:
    """Sends a chunk and takes it back while it is worked on."""
    answers: list[Any] = []
    call = wire.client.async_infer(
        callback=lambda result, error: answers.append(error or result),
        **wire.request(STREAMING, inputs_of(samples), sequence_id=sequence_id, sequence_start=start),
    )
    time.sleep(0.2)
    call.cancel()
    assert eventually(lambda: bool(answers))
    assert isinstance(answers[0], Exception)


def run_out_of_time(wire: Wire, sequence_id: int, samples: np.ndarray, start: bool) -> None:
    """Sends a chunk with a deadline that passes while it is worked on."""
    request = wire.request(STREAMING, inputs_of(samples), sequence_id=sequence_id, sequence_start=start)
    error = outcome_of(lambda: wire.client.infer(**request, client_timeout=0.2))
    assert isinstance(error, Exception)
    assert "Deadline Exceeded" in str(error)


def go_on(wire: Wire, sequence_id: int, samples: np.ndarray, end: bool = False) -> str:
    """The text of a further chunk."""
    return text_of(wire.infer(STREAMING, inputs_of(samples), sequence_id=sequence_id, sequence_end=end))


@pytest.mark.parametrize("leave", [cancel, run_out_of_time])
@pytest.mark.parametrize("start", [True, False])
def test_a_stream_whose_request_is_taken_back_is_freed_soon_beside_one_that_goes_on(
    server: RunningServer, leave: Callable[[Wire, int, np.ndarray, bool], None], start: bool
) -> None:
    assert eventually(lambda: streams_are_back(server))
    cancelled, reaped = (settled_counter(server, f"sequences_{name}") for name in ("cancelled", "reaped"))
    with Wire(server) as wire:
        neighbour, left = Stream(wire), Stream(wire)
        neighbour.send(clip("digits.flac")[:CHUNK])
        if not start:
            left.send(clip("digits.flac")[:CHUNK])
        leave(wire, left.id, LONG, start)
        assert eventually(lambda: counter(server, "sequences_cancelled") == cancelled + 1, SOON_S)
        assert eventually(lambda: gauge(server, "sequences_open") == 1, SOON_S)
        assert code_of(refusal(lambda: go_on(wire, left.id, clip("digits.flac")))) == "UNKNOWN_SEQUENCE"
        assert neighbour.send(clip("digits.flac")[CHUNK:], end=True) == references()["digits.flac"]
        assert eventually(lambda: streams_are_back(server), SOON_S)
        assert settled_counter(server, "sequences_reaped") == reaped
        # Its id is as good as new.
        assert Stream(wire, left.id).send(clip("digits.flac"), end=True) == references()["digits.flac"]


def test_streams_of_a_connection_that_is_closed_are_freed_soon(server: RunningServer) -> None:
    assert eventually(lambda: streams_are_back(server))
    cancelled, reaped = (settled_counter(server, f"sequences_{name}") for name in ("cancelled", "reaped"))
    with Pipeline(server) as pipeline:
        for sequence_id in (new_id(), new_id()):
            for number, piece in enumerate(cut(LONG, 20 * RATE)):
                pipeline.send(sequence_id, inputs_of(piece), start=number == 0)
        assert eventually(lambda: gauge(server, "sequences_open") == 2)
    assert eventually(lambda: streams_are_back(server), SOON_S)
    assert settled_counter(server, "sequences_cancelled") == cancelled + 2
    assert counter(server, "sequences_reaped") == reaped


@pytest.mark.parametrize("leave", [cancel, run_out_of_time])
def test_a_stream_that_goes_on_behind_a_request_taken_back_has_all_its_text(
    server: RunningServer, leave: Callable[[Wire, int, np.ndarray, bool], None]
) -> None:
    rest = as_pcm(clip("digits.flac"))
    with Wire(server) as wire:
        expected = Stream(wire).play([LONG, rest])[-1]
        sequence_id = new_id()
        leave(wire, sequence_id, LONG, True)
        assert go_on(wire, sequence_id, rest[:CHUNK])
        assert go_on(wire, sequence_id, rest[CHUNK:], end=True) == expected


def test_clips_that_nobody_waits_for_any_more_are_not_decoded(server: RunningServer) -> None:
    """Those that wait beside long ones are cancelled, and what is sent behind them is answered soon."""
    before = settled(server)

    def count(name: str) -> float:
        key = f'oasr_clip_requests_{name}_total{{model="{OFFLINE}"}}'
        return settled(server)[key] - before[key]

    answers: list[Any] = []
    with Wire(server) as wire:
        calls = [
            wire.client.async_infer(
                callback=lambda result, error: answers.append(error or result),
                **wire.request(OFFLINE, inputs_of(LONG)),
            )
            for _ in range(12)
        ]
        assert eventually(lambda: gauge(server, "clips_queued", OFFLINE) >= 6)
        for call in calls:
            call.cancel()
        assert eventually(lambda: len(answers) == 12)
        assert all(isinstance(answer, Exception) for answer in answers)
        assert wire.transcribe(clip("digits.flac")) == references()["digits.flac"]
        assert eventually(lambda: gauge(server, "clips_queued", OFFLINE) == 0)
    # As many as were not done yet when that was found out.
    assert count("cancelled") >= 1
    assert count("cancelled") + count("finished") <= 13
    assert count("failed") == count("refused") == 0
