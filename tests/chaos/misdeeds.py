"""What clients do to a stream: finish, abandon, cancel or spoil it. Texts are checked where there are any."""

import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.chaos.neighbours import DEADLINE_S
from tests.server.support import (
    CLIPS,
    NOTHING,
    STREAMING,
    Stream,
    Wire,
    assert_fit_for_users,
    clip,
    code_of,
    cut,
    inputs_of,
    new_id,
    outcome_of,
    references,
)

Misdeed = Callable[[Wire, random.Random], None]

_FULL_PAUSE_S = 0.2


def _pieces(rng: random.Random, name: str) -> list[np.ndarray]:
    return cut(clip(name), *(rng.randrange(3200, 16000) for _ in range(4)))


def _begun(wire: Wire, rng: random.Random, piece: np.ndarray, sequence_id: int | None = None) -> Stream:
    """A stream whose first piece was taken; a server that is full is asked again."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        stream = Stream(wire, sequence_id)
        error = outcome_of(lambda one=stream: one.send(piece))
        if not isinstance(error, Exception):
            return stream
        assert code_of(error) == "SERVER_FULL", error
        assert time.monotonic() < deadline, "the server stays full"
        time.sleep(_FULL_PAUSE_S * rng.random())


def say_it_all(wire: Wire, rng: random.Random, sequence_id: int | None = None) -> None:
    """A whole stream, whose text must be right."""
    name = rng.choice(CLIPS)
    first, *others = _pieces(rng, name)
    stream = _begun(wire, rng, first, sequence_id)
    text = ""
    for piece in others:
        text = stream.send(piece, end=piece is others[-1])
    assert text == references()[name]


def abandon(wire: Wire, rng: random.Random) -> None:
    """Begins and goes away without END."""
    stream = _begun(wire, rng, clip(rng.choice(CLIPS))[: rng.randrange(0, 16000)])
    for _ in range(rng.randrange(2)):
        stream.send(clip(rng.choice(CLIPS))[: rng.randrange(0, 16000)])


def cancel(wire: Wire, rng: random.Random) -> None:
    """Breaks off in the middle of a request: by a cancel over gRPC, by a closed connection over HTTP.

    Half of those who cancel begin a stream of the same id straight after that.
    """
    stream = _begun(wire, rng, clip(rng.choice(CLIPS))[:8000])
    if wire.protocol == "grpc":
        answered = threading.Event()
        request = wire.request(STREAMING, inputs_of(clip("digits.flac")), sequence_id=stream.id)
        context = wire.client.async_infer(callback=lambda result, error: answered.set(), **request)
        time.sleep(rng.uniform(0.0, 0.02))
        context.cancel()
        assert answered.wait(DEADLINE_S), "neither cancelled nor answered"
    else:
        host, port = wire.url.split(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
            head = f"POST /v2/models/{STREAMING}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"
            connection.sendall(head.encode() + b'{"inputs": [' * rng.randrange(1, 100))
    if rng.random() < 0.5:
        say_it_all(wire, rng, stream.id)


def _not_a_number(wire: Wire, stream: Stream) -> Any:
    return stream.send(np.full(1000, np.nan, dtype=np.float32))


def _both(wire: Wire, stream: Stream) -> Any:
    both = {**inputs_of(NOTHING), **inputs_of(NOTHING.astype(np.int16))}
    return stream.infer(both)


def _too_long(wire: Wire, stream: Stream) -> Any:
    return stream.send(clip("digits.flac")[:500], length=501)


def _negative(wire: Wire, stream: Stream) -> Any:
    return stream.send(clip("digits.flac")[:500], length=-1)


def _late_option(wire: Wire, stream: Stream) -> Any:
    inputs = inputs_of(clip("digits.flac")[:500])
    return wire.infer(STREAMING, inputs, parameters={"chunk_size": 8}, sequence_id=stream.id)


def _other_type(wire: Wire, stream: Stream) -> Any:
    return wire.infer(STREAMING, {"WAV": np.zeros((1, 100))}, sequence_id=stream.id)


def _other_rank(wire: Wire, stream: Stream) -> Any:
    return wire.infer(STREAMING, {"WAV": np.zeros((1, 2, 100), dtype=np.float32)}, sequence_id=stream.id)


def _other_name(wire: Wire, stream: Stream) -> Any:
    return wire.infer(STREAMING, {"SAMPLES": np.zeros((1, 100), dtype=np.float32)}, sequence_id=stream.id)


def _other_output(wire: Wire, stream: Stream) -> Any:
    return wire.infer(STREAMING, inputs_of(NOTHING), ("TEXT",), sequence_id=stream.id)


def _unknown_stream(wire: Wire, stream: Stream) -> Any:
    return wire.infer(STREAMING, inputs_of(clip("digits.flac")), sequence_id=new_id())


def _unknown_option(wire: Wire, stream: Stream) -> Any:
    return Stream(wire, no_such_option=1).send(clip("digits.flac"))


def _impossible_option(wire: Wire, stream: Stream) -> Any:
    return Stream(wire, n_best=-3).send(clip("digits.flac"), end=True)


_NONSENSE = (
    _not_a_number,
    _both,
    _too_long,
    _negative,
    _late_option,
    _other_type,
    _other_rank,
    _other_name,
    _other_output,
    _unknown_stream,
    _unknown_option,
    _impossible_option,
)


def send_nonsense(wire: Wire, rng: random.Random) -> None:
    """A whole stream with nonsense in the middle: that is refused in words, and the text is right all the same."""
    name = rng.choice(CLIPS)
    first, *others = _pieces(rng, name)
    stream = _begun(wire, rng, first)
    nonsense = rng.choice(_NONSENSE)
    error = outcome_of(lambda: nonsense(wire, stream))
    assert isinstance(error, InferenceServerException), f"{nonsense.__name__} was answered with {error!r}"
    assert_fit_for_users(error)
    assert "INTERNAL" not in (error.status() or "") and code_of(error) != "INTERNAL_ERROR", error
    text = ""
    for piece in others:
        text = stream.send(piece, end=piece is others[-1])
    assert text == references()[name], nonsense.__name__


SHARES: tuple[tuple[Misdeed, float], ...] = (
    (say_it_all, 0.65),
    (abandon, 0.20),
    (cancel, 0.10),
    (send_nonsense, 0.05),
)


def chosen(rng: random.Random) -> Misdeed:
    """One of them, by its share."""
    deeds, shares = zip(*SHARES, strict=True)
    deed: Misdeed = rng.choices(deeds, shares)[0]
    return deed
