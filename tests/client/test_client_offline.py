import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from client_fakes import Call, FakeTransport

from oasr_client.errors import (
    AudioError,
    InvalidRequest,
    OasrError,
    RequestCancelled,
    ServerUnavailable,
    ServerUnreachable,
)
from oasr_client.offline import Failure, OfflineClient, Transcription, in_order

CLIP = np.zeros(16, dtype=np.int16)


def test_a_file_travels_as_it_is(fake: FakeTransport, tmp_path: Path) -> None:
    path = tmp_path / "clip.xyz"
    path.write_bytes(b"\x00any\x00")
    answer = OfflineClient(via=fake).transcribe_file(path, {"n_best": 2}, want_result=True)
    (call,) = fake.calls
    assert (call.model, call.tensor, call.samples[0]) == ("oasr_transcribe", "AUDIO", b"\x00any\x00")
    assert (call.sequence, call.parameters) == (None, {"n_best": 2})
    assert answer == Transcription(str(path), "word", {"text": "word"}, answer.latency_s)


def test_samples_travel_as_int16(fake: FakeTransport) -> None:
    assert OfflineClient(via=fake).transcribe_samples(np.array([0.5], dtype=np.float32)).text == "word"
    (call,) = fake.calls
    assert (call.model, call.tensor, call.samples.tolist()) == ("oasr_offline", "PCM", [16384])


def test_missing_and_empty_files_are_told_before_sending(fake: FakeTransport, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    client = OfflineClient(via=fake)
    for name, reason in (("missing", "no such file"), ("empty", "is empty")):
        with pytest.raises(AudioError, match=reason):
            client.transcribe_file(tmp_path / name)
    assert fake.calls == []


def test_many_keep_their_order_and_their_failures(fake: FakeTransport, tmp_path: Path) -> None:
    def answer(call: Call) -> OasrError | None:
        number = int(call.samples[0])
        time.sleep(0.02 * (5 - number))
        return InvalidRequest("three") if number == 3 else None

    fake.answer = answer
    paths = [tmp_path / str(number) for number in range(5)]
    for number, path in enumerate(paths):
        path.write_text(str(number))
    paths.append(tmp_path / "missing")
    outcomes = list(OfflineClient(via=fake).transcribe_many(paths, concurrency=3))
    assert [outcome.source for outcome in outcomes] == [str(path) for path in paths]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert [str(failure.error) for failure in failures] == ["three", f"no such file: {tmp_path / 'missing'}"]


def test_leaving_many_early_drops_what_was_not_sent(fake: FakeTransport) -> None:
    is_left = threading.Event()

    def answer(call: Call) -> None:
        # However long it takes to leave, no more than the next one is under way then.
        assert len(fake.calls) == 1 or is_left.wait(60)

    fake.answer = answer
    outcomes = OfflineClient(via=fake).transcribe_many([b"x"] * 50, concurrency=1)
    next(outcomes)
    threading.Timer(0.1, is_left.set).start()
    outcomes.close()
    time.sleep(0.1)
    assert len(fake.calls) < 5


def refusing(*numbers: int, kind: type[OasrError] = ServerUnavailable) -> Callable[[Call], OasrError | None]:
    """Refuses the requests of these numbers, counted from 1."""
    seen: list[Call] = []

    def answer(call: Call) -> OasrError | None:
        seen.append(call)
        return kind("not now", code="SERVER_FULL", status="UNAVAILABLE") if len(seen) in numbers else None

    return answer


def test_a_full_server_is_asked_again_once_it_has_answered(fake: FakeTransport) -> None:
    fake.answer = refusing(1, 3, 4)
    client = OfflineClient(via=fake, retry_seconds=60)
    with pytest.raises(ServerUnavailable):
        client.transcribe_samples(CLIP)
    assert client.transcribe_samples(CLIP).text
    assert client.transcribe_samples(CLIP).text
    assert len(fake.calls) == 5


def test_a_server_that_stays_away_is_waited_for_once(fake: FakeTransport) -> None:
    fake.answer = refusing(*range(2, 100), kind=ServerUnreachable)
    client = OfflineClient(via=fake, retry_seconds=0.3)
    client.transcribe_samples(CLIP)
    with pytest.raises(ServerUnreachable):
        client.transcribe_samples(CLIP)
    asked = len(fake.calls)
    assert asked > 2
    with pytest.raises(ServerUnreachable):
        client.transcribe_samples(CLIP)
    assert len(fake.calls) == asked + 1


def test_closing_ends_a_wait(fake: FakeTransport) -> None:
    fake.answer = refusing(*range(2, 1000))
    client = OfflineClient(via=fake, retry_seconds=600)
    client.transcribe_samples(CLIP)
    threading.Timer(0.2, client.close).start()
    with pytest.raises(RequestCancelled, match="was closed"):
        client.transcribe_samples(CLIP)


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number

    outcomes = in_order(items(), lambda number: 2 * number, concurrency=2)
    assert [next(outcomes) for _ in range(50)] == [2 * number for number in range(50)]
    assert len(taken) < 200
    outcomes.close()
