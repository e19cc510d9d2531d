import threading
import time

import numpy as np
import pytest
from client_fakes import Call, FakeTransport

from oasr_client.errors import InvalidRequest, OasrError, RequestCancelled, StreamEnded
from oasr_client.playback import Playback, Progress, play
from oasr_client.streaming import StreamingClient

SECOND = np.arange(16_000, dtype=np.int16)


def test_a_clip_is_sent_whole_and_ended_with_its_last_chunk(fake: FakeTransport) -> None:
    seen: list[Progress] = []
    outcome = play(StreamingClient(via=fake), SECOND, chunk_ms=400, on_progress=seen.append)
    assert np.array_equal(np.concatenate([call.samples for call in fake.calls]), SECOND)
    assert fake.flags == [(True, False), (False, False), (False, True)]
    assert [progress.sent_s for progress in seen] == pytest.approx([0.4, 0.8, 1.0])
    assert outcome.text == seen[-1].response.text == "word word word"
    assert tuple(progress.latency_s for progress in seen) == outcome.latencies_s
    assert (outcome.audio_s, len(outcome.latencies_s), outcome.warning) == (1.0, 3, "")


def test_a_clip_without_samples_is_one_request(fake: FakeTransport) -> None:
    outcome = play(StreamingClient(via=fake), SECOND[:0])
    assert fake.flags == [(True, True)]
    assert outcome.real_time_factor == 0


def test_real_time_sends_no_chunk_before_a_microphone_would(fake: FakeTransport) -> None:
    begin = time.perf_counter()
    sent_at: list[float] = []

    def answer(call: Call) -> None:
        sent_at.append(time.perf_counter() - begin)

    fake.answer = answer
    outcome = play(StreamingClient(via=fake), SECOND[:6_400], chunk_ms=100, realtime=True)
    assert all(at >= 0.1 * (number + 1) - 0.002 for number, at in enumerate(sent_at))
    assert outcome.elapsed_s >= 0.398
    # Waiting for the next chunk is no latency.
    assert min(outcome.latencies_s) < 0.1


def test_in_real_time_waiting_for_the_last_answer_counts_as_latency(fake: FakeTransport) -> None:
    def answer(call: Call) -> None:
        time.sleep(0.06)

    fake.answer = answer
    outcome = play(StreamingClient(via=fake), SECOND[:1_600], chunk_ms=20, realtime=True)
    assert outcome.latencies_s[-1] > 0.06 + 0.1


def test_a_stream_that_the_server_ends_keeps_its_text(fake: FakeTransport) -> None:
    def answer(call: Call) -> OasrError | None:
        return StreamEnded("too long") if len(fake.calls) == 2 else None

    fake.answer = answer
    outcome = play(StreamingClient(via=fake), SECOND, chunk_ms=200)
    assert fake.flags == [(True, False), (False, False), (False, True)]
    assert (outcome.text, outcome.warning) == ("word word word", "too long")


def test_a_refusal_ends_the_stream(fake: FakeTransport) -> None:
    def answer(call: Call) -> OasrError | None:
        return InvalidRequest("no") if len(fake.calls) == 2 else None

    fake.answer = answer
    with pytest.raises(InvalidRequest):
        play(StreamingClient(via=fake), SECOND, chunk_ms=200)
    assert fake.flags[-1] == (False, True)


def test_stop_ends_the_stream_early(fake: FakeTransport) -> None:
    stop = threading.Event()
    threading.Timer(0.15, stop.set).start()
    with pytest.raises(RequestCancelled):
        play(StreamingClient(via=fake), SECOND, chunk_ms=100, realtime=True, stop=stop)
    assert fake.flags[0] == (True, False)
    assert fake.flags[-1] == (False, True)
    assert len(fake.calls) < 5


def test_figures() -> None:
    outcome = Playback("", None, 10.0, 3.0, tuple(number / 1000 for number in range(1, 102)))
    assert outcome.median_s == pytest.approx(0.051)
    assert outcome.p99_s == pytest.approx(0.1)
    assert outcome.real_time_factor == pytest.approx(0.5151)
