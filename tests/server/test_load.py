"""Many streams at once: every one gets its own text, every request its one answer, and steps are wide."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer
from tests.server.support import (
    CHUNK,
    CLIPS,
    NOTHING,
    PROTOCOLS,
    RATE,
    STREAMING,
    TIMEOUT_S,
    Pipeline,
    Stream,
    Wire,
    all_clips,
    as_pcm,
    clip,
    code_of,
    cut,
    eventually,
    inputs_of,
    new_id,
    references,
    settled,
    streamed,
    streams_are_back,
    text_of,
    together,
)

WORD = clip("digits.flac")[6000:16000]
"""Some speech that is short enough to be sent in very small pieces."""


def mixed_streams() -> list[list[np.ndarray]]:
    """32 streams of unlike audio in unlike pieces, of 1 sample to 2 s."""
    streams = [cut(WORD[1000:1450], 1), cut(WORD[:4000], 7), cut(WORD, 160), cut(WORD, 400)]
    for sizes in ((400,), (3200,), (CHUNK,), (2 * RATE,), (160, 3200), (11040, CHUNK), (0, 3200, 1, 25000)):
        for name in CLIPS:
            streams.append(cut(clip(name), *sizes))
    for size in (1600, 3200, CHUNK, 2 * RATE):
        streams.append(cut(all_clips(), size))
    streams += [cut(as_pcm(clip(name)), CHUNK) for name in CLIPS]
    assert len(streams) == 32
    return streams


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_32_streams_of_unlike_pieces_each_get_the_text_they_get_alone(server: RunningServer, protocol: str) -> None:
    streams = mixed_streams()
    alone = [streamed(server, cut(np.concatenate(pieces), CHUNK), protocol) for pieces in streams]
    assert together(lambda pieces: streamed(server, pieces, protocol), streams) == alone
    assert eventually(lambda: streams_are_back(server))


def test_streams_of_unlike_chunk_sizes_run_side_by_side(server: RunningServer) -> None:
    wanted = [(name, size) for size in (16, 8, 4, 11) for name in CLIPS]

    def play(one: tuple[str, int]) -> str:
        return streamed(server, cut(clip(one[0]), 3200), chunk_size=one[1])

    alone = [play(one) for one in wanted]
    assert together(play, wanted) == alone


def test_streams_and_whole_clips_do_not_disturb_each_other(server: RunningServer) -> None:
    def whole(name: str) -> str:
        with Wire(server) as wire:
            return wire.transcribe(clip(name))

    def live(name: str) -> str:
        return streamed(server, cut(clip(name), CHUNK))

    works = [(work, name) for name in CLIPS * 3 for work in (whole, live)]
    texts = together(lambda one: one[0](one[1]), works)
    assert texts == [references()[name] for _, name in works]


# one answer for every request


class Storm:
    """Sequences of good and bad requests, woven into each other, with what each request must come to."""

    def __init__(self, requests: int):
        self._random = random.Random(0)
        self.expected: list[str] = []
        self.requests: list[tuple[Any, dict[str, Any]]] = []
        live: list[Iterator[tuple[str, Any, dict[str, Any]]]] = []
        while len(self.requests) < requests:
            if len(live) < 12:
                live.append(self._random.choice([self._good, self._spoilt, self._refused, self._stray])())
            sequence = self._random.choice(live)
            following = next(sequence, None)
            if following is None:
                live.remove(sequence)
                continue
            expected, inputs, arguments = following
            self.expected.append(expected)
            self.requests.append((inputs, arguments))
        # What is open when there are enough ends with the connection's last requests.
        for sequence in live:
            for expected, inputs, arguments in sequence:
                self.expected.append(expected)
                self.requests.append((inputs, arguments))

    def _good(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        sequence_id = new_id()
        pieces = cut(clip(self._random.choice(CLIPS)), self._random.choice([1600, 3200, CHUNK, 60000]))
        for number, piece in enumerate(pieces):
            flags = {"start": number == 0, "end": number == len(pieces) - 1}
            yield "", inputs_of(piece), {"sequence_id": sequence_id, **flags}

    def _spoilt(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """A good sequence in which every other request is refused."""
        broken = np.full(800, np.nan, dtype=np.float32)
        bad = [inputs_of(broken), inputs_of(WORD, -7), {**inputs_of(WORD), **inputs_of(as_pcm(WORD))}]
        for expected, inputs, arguments in self._good():
            yield expected, inputs, arguments
            if not arguments["end"]:
                yield "INVALID_INPUT", self._random.choice(bad), {"sequence_id": arguments["sequence_id"]}

    def _refused(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """A sequence whose START is refused."""
        sequence_id = new_id()
        yield "INVALID_OPTION", inputs_of(WORD), {"sequence_id": sequence_id, "start": True, "parameters": {"n": 1}}
        yield "UNKNOWN_SEQUENCE", inputs_of(WORD), {"sequence_id": sequence_id}
        yield "UNKNOWN_SEQUENCE", inputs_of(NOTHING), {"sequence_id": sequence_id, "end": True}

    def _stray(self) -> Iterator[tuple[str, Any, dict[str, Any]]]:
        """A request without a START, which the server itself refuses."""
        yield "stray", inputs_of(WORD), {"sequence_id": new_id()}


def test_every_request_of_a_mixed_storm_gets_exactly_one_answer(server: RunningServer) -> None:
    storm = Storm(300)
    log_before = len(server.log_text())
    with Pipeline(server) as pipeline:
        for inputs, arguments in storm.requests:
            pipeline.send(inputs=inputs, **arguments)
        answers = pipeline.answers()
    assert len(answers) == len(storm.requests) >= 300
    outcomes = []
    for answer, expected in zip(answers, storm.expected):
        if not isinstance(answer, InferenceServerException):
            assert answer.as_numpy("TRANSCRIPTS").shape == (1,)
            outcomes.append("")
        elif expected == "stray":
            assert "START flag" in answer.message()
            outcomes.append("stray")
        else:
            outcomes.append(code_of(answer))
    assert outcomes == storm.expected
    assert len([outcome for outcome in outcomes if outcome]) > 30
    assert eventually(lambda: streams_are_back(server))
    assert "response" not in server.log_text()[log_before:]


def test_a_client_that_goes_away_mid_stream_disturbs_nobody(server: RunningServer) -> None:
    gone = Pipeline(server)
    ids = [new_id() for _ in range(8)]
    with gone:
        for sequence_id in ids:
            for number in range(6):
                gone.send(sequence_id, inputs_of(all_clips()), start=number == 0)
    assert streamed(server, cut(clip("digits.flac"), CHUNK)) == references()["digits.flac"]
    # Whoever comes back to such a stream ends it.
    with Wire(server) as wire:
        for sequence_id in ids:
            stream = Stream(wire, sequence_id)
            stream.send(NOTHING)
            stream.end()
    assert eventually(lambda: streams_are_back(server))


# those who run ahead


def test_twelve_streams_far_ahead_delay_one_in_step_by_no_more_than_their_share(server: RunningServer) -> None:
    """Counted in what they get done meanwhile, for wall time says more of the machine."""
    pieces = cut(as_pcm(np.tile(all_clips(), 3)), CHUNK)
    ids = [new_id() for _ in range(12)]
    alone = streamed(server, cut(clip("digits.flac"), CHUNK))
    with Pipeline(server) as flood, Wire(server) as wire:
        for number, piece in enumerate(pieces):
            for sequence_id in ids:
                last = number == len(pieces) - 1
                flood.send(sequence_id, inputs_of(piece), start=number == 0, end=last)
        assert eventually(lambda: flood.unread > len(ids))
        before = flood.unread
        assert Stream(wire).play(cut(clip("digits.flac"), CHUNK))[-1] == alone
        meanwhile = flood.unread - before
        texts = [text_of(flood.next()) for _ in range(len(ids) * len(pieces))]
    # A chunk waits for the step that runs and for its own; the flood has one chunk of each stream in every step.
    steps = 3 * (len(cut(clip("digits.flac"), CHUNK)) + 2)
    assert meanwhile <= steps * len(ids) < len(texts)
    assert len(set(texts[-len(ids) :])) == 1
    assert eventually(lambda: streams_are_back(server))


# wide steps


def batch_widths(server: RunningServer) -> tuple[float, ...]:
    """(rows, steps) of the streaming engine so far."""
    values = settled(server)
    labels = f'mode="streaming",model="{STREAMING}"'
    # Before its first step a server has no such number.
    return tuple(values.get(f"oasr_engine_batch_size_{part}{{{labels}}}", 0.0) for part in ("sum", "count"))


@pytest.mark.parametrize(("streams", "least"), [(8, 4), (32, 16)])
def test_steps_take_many_streams_at_once(server: RunningServer, streams: int, least: int) -> None:
    samples = np.tile(all_clips(), 2)[: 10 * RATE]
    pieces = cut(samples, CHUNK)
    widths = []
    for _ in range(3):
        gate = threading.Barrier(streams)

        def play(number: int, gate: threading.Barrier = gate) -> str:
            with Wire(server) as wire:
                stream = Stream(wire)
                gate.wait(TIMEOUT_S)
                return stream.play(pieces)[-1]

        rows, steps = batch_widths(server)
        texts = together(play, range(streams))
        assert len(set(texts)) == 1
        rows_after, steps_after = batch_widths(server)
        widths.append((rows_after - rows) / (steps_after - steps))
        if widths[-1] > least:
            break
    assert max(widths) > least, widths
