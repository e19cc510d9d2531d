"""Requests and files that nobody has thought of: answered, or refused in words, and all goes on."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import RunningServer
from tests.audio.recordings import FORMATS, speech
from tests.chaos.aftermath import unharmed
from tests.chaos.damage import Damaged, files
from tests.chaos.ledger import Ledger
from tests.chaos.nonsense import Answer, GrpcSender, HttpSender, Request, requests
from tests.server.support import OFFLINE, STREAMING, Wire, assert_fit_for_users, code_of, outcome_of

AMOUNT = 1000
BODIES = 200


def explore(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], seed: int, amount: int) -> None:
    """Runs `check` on as many examples; the first that fails is made as small as it can be."""

    @seeded(seed)
    @settings(
        max_examples=amount,
        derandomize=False,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def examine(example: Any) -> None:
        check(example)

    examine()


def check_words(answer: Answer) -> None:
    """An error is for users, and is never a fault of ours."""
    if not answer.is_error:
        return
    assert "Traceback" not in answer.message
    assert '.py"' not in answer.message
    code = code_of(InferenceServerException(answer.message))
    assert code not in ("INTERNAL_ERROR", "STREAM_FAILED", "CLIP_FAILED", "ENGINE_DIED"), answer
    if code:
        assert "\n" not in answer.message


def found(answers: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in answers.most_common())


@pytest.mark.timeout(600)
def test_a_thousand_requests(server: RunningServer, seed: int, ledger: Ledger) -> None:
    answers: Counter[str] = Counter()
    senders = (GrpcSender(server), HttpSender(server))

    def check(example: tuple[Request, int]) -> None:
        request, which = example
        answer = senders[which].send(request)
        answers[answer.status] += 1
        check_words(answer)

    with unharmed(server, seed, ledger, "requests at random") as case:
        explore(st.tuples(requests(), st.integers(0, 1)), check, seed, AMOUNT)
        case.amount, case.note = f"{answers.total()} requests", found(answers)
    senders[0].close()
    assert min(answers["OK"], answers["200"], answers["INVALID_ARGUMENT"], answers["400"]) > AMOUNT // 200, answers


@pytest.mark.timeout(300)
def test_bodies_that_are_no_requests(server: RunningServer, seed: int, ledger: Ledger) -> None:
    """Over HTTP: no JSON, JSON of any kind, half a request."""
    answers: Counter[str] = Counter()
    sender = HttpSender(server)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner))
    sound = b'{"inputs": [{"name": "WAV", "datatype": "FP32", "shape": [1, 3], "data": [0.1, 0.2, 0.3]}]}'
    bodies = (
        st.binary(max_size=300)
        | documents.map(lambda one: repr(one).encode())
        | st.integers(0, len(sound)).map(lambda at: sound[:at])
        | st.sampled_from([b"[" * 20_000, b'{"a":' * 20_000, b'{"inputs": 7}', b"null", b""])
    )
    lengths = st.sampled_from(["", "0", "-1", "5", "99999999999", "x"])

    def check(example: tuple[str, bytes, str]) -> None:
        model, body, length = example
        headers = {"Inference-Header-Content-Length": length} if length else {}
        answer = sender.post(f"/v2/models/{model}/infer", body, headers)
        answers[answer.status] += 1
        check_words(answer)

    with unharmed(server, seed, ledger, "HTTP bodies at random") as case:
        explore(st.tuples(st.sampled_from([STREAMING, OFFLINE]), bodies, lengths), check, seed, BODIES)
        case.amount, case.note = f"{answers.total()} requests", found(answers)


@pytest.mark.timeout(600)
def test_a_thousand_files(server: RunningServer, seed: int, ledger: Ledger, tmp_path: Path) -> None:
    """The one that was at fault is left behind as `last`."""
    originals = [make(speech()) for make in FORMATS.values()]
    outcomes: Counter[str] = Counter()
    choice, last = random.Random(seed), tmp_path / "last"

    with Wire(server, "grpc") as grpc, Wire(server, "http") as http:

        def check(file: Damaged) -> None:
            last.write_bytes(file.data)
            wire = choice.choice((grpc, http))
            outcome = outcome_of(lambda: wire.transcribe_file(file.data))
            if isinstance(outcome, InferenceServerException):
                assert_fit_for_users(outcome)
                assert code_of(outcome) == "INVALID_INPUT", outcome
            outcomes["heard" if isinstance(outcome, str) else "refused"] += 1

        with unharmed(server, seed, ledger, "damaged files") as case:
            explore(files(originals), check, seed, AMOUNT)
            case.amount, case.note = f"{outcomes.total()} files of {len(originals)} formats", found(outcomes)
    assert min(outcomes["heard"], outcomes["refused"]) > AMOUNT // 20, outcomes
