import numpy as np
import pytest
from client_fakes import Call, FakeTransport

from oasr_client import errors
from oasr_client.session import MAX_CORRELATION_ID, new_correlation_id
from oasr_client.steps import result_of
from oasr_client.streaming import StreamingClient

START, MIDDLE, END, ONLY = (True, False), (False, False), (False, True), (True, True)
CHUNK = np.full(160, 0.5, dtype=np.float32)


def once(kind: type[errors.OasrError], when: int = 1):
    """Answers the `when`-th request with an error."""
    seen = []

    def answer(call: Call) -> errors.OasrError | None:
        seen.append(call)
        return kind("no") if len(seen) == when else None

    return answer


def test_start_comes_first_and_end_last(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream({"n_best": 2, "hotwords": ["a"]}) as stream:
        first = stream.send(CHUNK)
        stream.send(CHUNK)
        final = stream.finish()
    assert fake.flags == [START, MIDDLE, END]
    assert len({call.sequence.id for call in fake.calls}) == 1
    assert [call.parameters for call in fake.calls] == [{"n_best": 2, "hotwords": '["a"]'}, {}, {}]
    assert [call.samples.size for call in fake.calls] == [160, 160, 0]
    assert (first.text, first.is_final, first.result) == ("word", False, None)
    assert (final.text, final.is_final) == ("word word word", True)
    assert first.latency_s >= 0


def test_samples_travel_as_int16_or_as_float(fake: FakeTransport) -> None:
    StreamingClient(via=fake).stream().finish(CHUNK)
    StreamingClient(via=fake, encoding="float").stream().finish(CHUNK)
    pcm, wav = fake.calls
    assert (pcm.tensor, pcm.samples.dtype, pcm.samples[0]) == ("PCM", np.int16, 16384)
    assert (wav.tensor, wav.samples.dtype, wav.samples[0]) == ("WAV", np.float32, 0.5)


def test_result_is_asked_for_only_when_wanted(fake: FakeTransport) -> None:
    client = StreamingClient(via=fake)
    assert client.stream().finish().result is None
    assert client.stream(want_result=True).finish().result == {"text": "word word"}
    assert [call.outputs for call in fake.calls] == [("TRANSCRIPTS",), ("TRANSCRIPTS", "RESULT")]


def test_a_stream_left_without_finish_is_ended(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream() as stream:
        stream.send(CHUNK)
    assert fake.flags == [START, END]


def test_a_stream_left_by_an_exception_is_ended_and_the_exception_survives(fake: FakeTransport) -> None:
    fake.answer = once(errors.ServerError, when=2)

    def talk() -> None:
        with StreamingClient(via=fake).stream() as stream:
            stream.send(CHUNK)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        talk()
    assert fake.flags == [START, END]


def test_a_stream_that_sent_nothing_sends_no_end(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream():
        pass
    assert fake.calls == []


def test_finish_alone_is_start_and_end_in_one(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream({"a": 1}) as stream:
        assert stream.finish().is_final
    assert fake.flags == [ONLY]
    assert fake.calls[0].parameters == {"a": 1}


def test_a_refused_chunk_leaves_the_stream_usable(fake: FakeTransport) -> None:
    fake.answer = once(errors.InvalidRequest, when=2)
    with StreamingClient(via=fake).stream() as stream:
        stream.send(CHUNK)
        with pytest.raises(errors.InvalidRequest):
            stream.send(CHUNK)
        stream.send(CHUNK)
        stream.finish()
    assert fake.flags == [START, MIDDLE, MIDDLE, END]


def test_a_chunk_refused_on_this_side_is_not_sent(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream() as stream:
        with pytest.raises(errors.AudioError):
            stream.send(np.array([np.nan], dtype=np.float32))
        stream.send(CHUNK)
    assert fake.flags == [START, END]


@pytest.mark.parametrize("kind", [errors.InvalidRequest, errors.ServerUnavailable, errors.ServerUnreachable])
def test_a_refused_start_is_started_again(fake: FakeTransport, kind: type[errors.OasrError]) -> None:
    fake.answer = once(kind)
    with StreamingClient(via=fake).stream({"a": 1}) as stream:
        with pytest.raises(kind):
            stream.send(CHUNK)
        stream.send(CHUNK)
    assert fake.flags == [START, START, END]
    assert fake.calls[1].parameters == {"a": 1}


def test_a_refused_start_is_given_back(fake: FakeTransport) -> None:
    fake.answer = once(errors.InvalidRequest)
    with pytest.raises(errors.InvalidRequest), StreamingClient(via=fake).stream() as stream:
        stream.send(CHUNK)
    assert fake.flags == [START, END]


def test_a_start_without_an_answer_is_not_repeated(fake: FakeTransport) -> None:
    fake.answer = once(errors.ServerTimeout)
    with StreamingClient(via=fake).stream() as stream:
        with pytest.raises(errors.ServerTimeout):
            stream.send(CHUNK)
        stream.send(CHUNK)
    assert fake.flags == [START, MIDDLE, END]


def test_a_stream_the_server_forgot_starts_anew(fake: FakeTransport) -> None:
    fake.answer = once(errors.UnknownSequence, when=2)
    with StreamingClient(via=fake).stream({"a": 1}) as stream:
        stream.send(CHUNK)
        with pytest.raises(errors.UnknownSequence):
            stream.send(CHUNK)
        stream.send(CHUNK)
        stream.finish()
    assert fake.flags == [START, MIDDLE, START, END]
    assert fake.calls[2].parameters == {"a": 1}


def test_a_refused_end_is_not_sent_twice_but_a_lost_one_is(fake: FakeTransport) -> None:
    for kind, expected in ((errors.ServerError, [START, END]), (errors.ServerTimeout, [START, END, END])):
        fake.calls.clear()
        fake.answer = once(kind, when=2)
        with StreamingClient(via=fake).stream() as stream:
            stream.send(CHUNK)
            with pytest.raises(kind):
                stream.finish()
        assert fake.flags == expected


def test_an_ended_stream_takes_no_more(fake: FakeTransport) -> None:
    with StreamingClient(via=fake).stream() as stream:
        stream.finish()
        with pytest.raises(errors.InvalidRequest, match="has ended"):
            stream.send(CHUNK)
    assert fake.flags == [ONLY]


def test_correlation_ids_are_fresh_and_fit_every_protocol(fake: FakeTransport) -> None:
    ids = {new_correlation_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(1 <= number <= MAX_CORRELATION_ID for number in ids)
    assert StreamingClient(via=fake).stream(correlation_id="mine").correlation_id == "mine"


def test_a_transport_that_was_handed_in_stays_open(fake: FakeTransport) -> None:
    with StreamingClient(via=fake):
        pass
    assert not fake.closed


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff"])
def test_a_broken_result_is_a_server_error(content: bytes) -> None:
    with pytest.raises(errors.ServerError, match="RESULT"):
        result_of({"RESULT": np.array([content], dtype=object)})
