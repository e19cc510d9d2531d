import time
from pathlib import Path

import numpy as np
import pytest
from client_fakes import Call, FakeTransport

from oasr_client.errors import AudioError, InvalidRequest, OasrError
from oasr_client.offline import Failure, OfflineClient, Transcription


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
    def answer(call: Call) -> None:
        time.sleep(0.02)

    fake.answer = answer
    outcomes = OfflineClient(via=fake).transcribe_many([b"x"] * 50, concurrency=1)
    next(outcomes)
    outcomes.close()
    time.sleep(0.1)
    assert len(fake.calls) < 5
