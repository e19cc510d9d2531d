"""Slots and ids that pass from one stream to the next."""

import random
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.chaos.aftermath import seconds_until_back, unharmed
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.misdeeds import abandon, cancel, say_it_all, send_nonsense
from tests.server.support import (
    CLIPS,
    OFFLINE,
    PROTOCOLS,
    STREAMING,
    Stream,
    Wire,
    clip,
    code_of,
    cut,
    inputs_of,
    new_id,
    outcome_of,
    references,
    together,
)

SLOTS = 4
TURNS = 150
CLIENTS = 8
MEETINGS = 150


@pytest.mark.timeout(600)
def test_slots_that_are_used_again(tritonserver: None, repository: Any, seed: int, ledger: Ledger) -> None:
    """Twice as many clients as slots: every stream gets one that another has just left, in whatever state."""
    environment = {"OASR_DTYPE": "float32", "OASR_STREAMING_IDLE_SECONDS": "1"}
    with running_server(
        demo_checkpoint_dir(),
        model_repository=repository,
        models=(STREAMING, OFFLINE),
        max_sequences=SLOTS,
        environment=environment,
        ready_timeout_s=240,
        exit_timeout_s=5,
    ) as server:

        def work(number: int) -> int:
            rng = random.Random(f"{seed} {number}")
            with Wire(server, PROTOCOLS[number % 2]) as wire:
                for turn in range(TURNS):
                    # Those that end in another way are rarer, for a slot that is abandoned is away for a second.
                    deed = rng.choice((abandon, cancel, send_nonsense)) if turn % 5 == 4 else say_it_all
                    deed(wire, rng)
            return TURNS

        total = sum(together(work, range(CLIENTS), 500))
        back_s = seconds_until_back(server)
    ledger.add(
        Finding("slots used again", f"{total} streams in {SLOTS} slots", 4 * total // 5, 0.0, back_s, "own texts")
    )


def _meet(wire: Wire, sequence_id: int | str, rng: random.Random) -> tuple[int, int]:
    """Plays a clip under an id that another client uses as well; how many requests were answered and refused."""
    answered = refused = 0
    name = rng.choice(CLIPS)
    pieces = cut(clip(name), *(rng.randrange(3200, 16000) for _ in range(4)))
    stream = Stream(wire, sequence_id)
    for piece in pieces:
        outcome = outcome_of(lambda one=piece: stream.infer(inputs_of(one), end=one is pieces[-1]))
        if isinstance(outcome, InferenceServerException):
            known = code_of(outcome) in ("STREAM_RESTARTED", "UNKNOWN_SEQUENCE") or "START" in outcome.message()
            assert known, outcome
            refused += 1
        else:
            answered += 1
    return answered, refused


@pytest.mark.timeout(600)
def test_two_clients_of_one_id(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """They spoil each other's streams, as documented, and nobody else's; each request gets its one answer."""
    ids: list[int | str] = [10086, new_id(), "call-1", "x" * 128]

    def work(number: int) -> tuple[int, int]:
        rng = random.Random(f"{seed} {number}")
        answered = refused = 0
        with Wire(server, PROTOCOLS[number % 2]) as wire:
            for turn in range(MEETINGS):
                more, less = _meet(wire, ids[turn % len(ids)], rng)
                answered, refused = answered + more, refused + less
        return answered, refused

    with unharmed(server, seed, ledger, "two clients of one id") as case:
        outcomes = together(work, range(2), 300)
        answered, refused = map(sum, zip(*outcomes, strict=True))
        assert refused > 0, "they have never met"
        case.amount = f"{2 * MEETINGS} streams of {len(ids)} ids"
        case.note = f"{answered} requests answered, {refused} told that the stream was begun anew"
    with Wire(server) as wire:
        for sequence_id in ids:
            assert Stream(wire, sequence_id).play([clip("digits.flac")])[-1] == references()["digits.flac"]


@pytest.mark.timeout(300)
def test_the_start_of_a_stream_again_and_again(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """A client that never goes past START holds one slot, however often it begins."""
    sequence_id, times = new_id(), 500
    with unharmed(server, seed, ledger, "START on an open stream") as case, Wire(server) as wire:
        for _ in range(times):
            Stream(wire, sequence_id).send(np.zeros(4000, dtype=np.float32))
        assert Stream(wire, sequence_id).play([clip("command.flac")])[-1] == references()["command.flac"]
        case.amount = f"{times} times"
