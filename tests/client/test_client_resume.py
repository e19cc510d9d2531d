import asyncio
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talking_server import (
    BLOCK,
    RATE,
    TROUBLES,
    TalkingServer,
    Trouble,
    answer_lost,
    busy,
    connection_refused,
    engine_died,
    full,
    no_answer,
    refused,
    restarted,
    spoken,
    stream_failed,
    unreachable,
)

from oasr_client import AsyncStreamingClient, errors
from oasr_client.resume import Fate, Resume, delay_s, fate_of, policy_of
from oasr_client.session import StreamResponse
from oasr_client.streaming import Stream, StreamingClient

ENDPOINTS = {"endpointing": True}
PAUSE = [0] * 15
# Two segments, and a third in progress.
TALK = spoken([0, 0, 1, 1, 0, 2, 2, *PAUSE, 3, 3, 0, 4, *PAUSE, 5, 5, 0, 6, 6])


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "_pause", lambda self, seconds: None)


def play(
    server: TalkingServer,
    samples: np.ndarray,
    size: int = 4 * BLOCK,
    options: dict[str, Any] | None = None,
    want_result: bool = True,
    resume: bool | Resume = True,
) -> list[StreamResponse]:
    client = StreamingClient(via=server)
    with client.stream(options, want_result, resume=resume) as stream:
        answers = [stream.send(samples[begin : begin + size]) for begin in range(0, samples.size, size)]
        return [*answers, stream.finish()]


def final_of(answers: list[StreamResponse]) -> dict[str, Any]:
    assert answers[-1].result is not None
    return {key: value for key, value in answers[-1].result.items() if key != "endpoint"}


@pytest.mark.parametrize("options", [None, ENDPOINTS])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_loss_at_any_request_changes_nothing(trouble: Trouble, options: dict[str, Any] | None) -> None:
    undisturbed = play(TalkingServer(), TALK, options=options)
    for number in range(1, len(undisturbed)):
        server = TalkingServer({number: trouble})
        answers = play(server, TALK, options=options)
        assert [answer.text for answer in answers] == [answer.text for answer in undisturbed]
        assert final_of(answers) == final_of(undisturbed)
        told = [answer.result["endpoint"]["reason"] for answer in answers if "endpoint" in (answer.result or {})]
        assert told == ["silence"] * (2 if options else 0)
        # Nothing that was refused without being taken costs a new sequence, except an END.
        is_plain_refusal = trouble in (full, busy) and number < len(undisturbed) - 1
        assert answers[-1].resumes == (0 if is_plain_refusal else 1)


@given(
    blocks=st.lists(st.integers(0, 3), max_size=40).flatmap(
        lambda words: st.just([block for word in words for block in ([word] if word else [0] * 7)])
    ),
    size=st.integers(1, 20),
    troubles=st.dictionaries(st.integers(1, 30), st.sampled_from(TROUBLES), max_size=8),
    endpointing=st.booleans(),
    want_result=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_losses_in_any_order_change_nothing(
    blocks: list[int], size: int, troubles: dict[int, Trouble], endpointing: bool, want_result: bool
) -> None:
    samples, options = spoken(blocks), {"endpointing": endpointing}
    undisturbed = play(TalkingServer(), samples, size * BLOCK // 2, options, want_result)
    # Several failures at the same audio would be taken for its own fault.
    of_audio = [number for number, trouble in troubles.items() if trouble in (stream_failed, engine_died)]
    for number in of_audio[2:]:
        del troubles[number]
    answers = play(TalkingServer(troubles), samples, size * BLOCK // 2, options, want_result)
    assert [answer.text for answer in answers] == [answer.text for answer in undisturbed]
    if want_result:
        assert final_of(answers) == final_of(undisturbed)
        for earlier, later in pairwise(answers):
            finals = [one for one in (earlier.result or {})["segments"] if one["is_final"]]
            assert (later.result or {})["segments"][: len(finals)] == finals


def test_only_what_was_not_final_is_sent_again() -> None:
    server = TalkingServer({11: connection_refused})
    answers = play(server, TALK, options=ENDPOINTS)
    assert answers[-1].text == "W1 W2 W3 W4 W5 W6"
    (replayed,) = server.finals
    # From shortly before the third segment on.
    assert 5 * BLOCK < replayed.size < TALK.size / 2
    assert len({step.id for step in server.steps}) == 2


def test_a_stream_without_endpoints_is_sent_again_whole() -> None:
    server = TalkingServer({9: restarted})
    play(server, TALK)
    assert np.array_equal(server.finals[0], TALK)


def test_audio_before_a_final_segment_is_not_kept() -> None:
    server = TalkingServer()
    with StreamingClient(via=server).stream(ENDPOINTS, resume=True) as stream:
        for _ in range(40):
            stream.send(spoken([1, 2, *PAUSE]))
        journal = stream._session._journal
        assert journal is not None
        assert journal.end == 40 * 17 * BLOCK
        assert journal.end - journal.first < 8 * RATE


def test_silence_is_not_kept_for_long() -> None:
    with StreamingClient(via=TalkingServer()).stream(ENDPOINTS, resume=True) as stream:
        for _ in range(100):
            stream.send(spoken([0] * 10))
        journal = stream._session._journal
        assert journal is not None
        assert journal.end - journal.first < 8 * RATE


def test_more_than_may_be_replayed_is_a_failure_in_words() -> None:
    server = TalkingServer({6: connection_refused})
    with StreamingClient(via=server).stream(resume=Resume(max_replay_seconds=2)) as stream:
        for _ in range(6):
            stream.send(spoken([1, 2, 3, 4, 5]))
        with pytest.raises(errors.ResumeFailed, match=r"lost after 3\.0 s .* more than 2 s .* set endpointing"):
            stream.send(spoken([1, 2, 3, 4, 5]))
    assert server.requests == 7


def test_a_server_that_was_never_there_is_not_waited_for() -> None:
    server = TalkingServer({0: connection_refused})
    with StreamingClient(via=server).stream(resume=True) as stream, pytest.raises(errors.ServerUnreachable):
        stream.send(TALK)
    assert server.requests == 1


def test_a_full_server_is_told_at_once_to_a_new_client_and_waited_for_by_one_that_was_served() -> None:
    server = TalkingServer({0: full, 2: full, 3: full})
    client = StreamingClient(via=server)
    with client.stream(resume=True) as stream:
        with pytest.raises(errors.ServerUnavailable) as raised:
            stream.send(TALK)
        assert raised.value.code == "SERVER_FULL"
        assert stream.finish(TALK).text.startswith("W1")
    with client.stream(resume=True) as stream:
        assert stream.finish(TALK).text.startswith("W1")
        assert stream.resumes == 0
    assert server.requests == 5


def test_waiting_ends_after_resume_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    server = TalkingServer(dict.fromkeys(range(1, 1000), connection_refused))
    with StreamingClient(via=server).stream(resume=Resume(resume_seconds=20)) as stream:
        stream.send(TALK)
        session = stream._session
        session.clock = lambda: sum(waited)
        monkeypatch.setattr(Stream, "_pause", lambda self, seconds: waited.append(seconds))
        with pytest.raises(errors.ResumeFailed, match=r"could not be resumed within .* cannot reach the server"):
            stream.send(TALK)
        assert 14 < sum(waited) <= 20
        assert all(0.05 <= pause <= 5 for pause in waited)
        # The chunk was not taken into the stream: it may be sent again.
        server.troubles.clear()
        assert stream.finish(TALK).text == "W1 W2 W3 W4 W5 W6 W1 W2 W3 W4 W5 W6"


def test_audio_at_which_the_server_fails_again_and_again_is_given_up() -> None:
    for trouble in (stream_failed, engine_died):
        server = TalkingServer(dict.fromkeys(range(1, 1000, 2), trouble))
        with StreamingClient(via=server).stream(resume=True) as stream:
            stream.send(TALK)
            with pytest.raises(errors.ResumeFailed):
                stream.send(TALK)
        assert server.requests < 10


def test_a_chunk_that_is_refused_for_what_it_is_raises_and_the_stream_goes_on() -> None:
    def invalid(server: TalkingServer, work: Any) -> dict[str, Any]:
        raise errors.InvalidRequest("no audio", code="INVALID_INPUT", status="INVALID_ARGUMENT")

    with StreamingClient(via=TalkingServer({1: invalid, 3: invalid})).stream(resume=True) as stream:
        stream.send(spoken([1, 1]))
        with pytest.raises(errors.InvalidRequest):
            stream.send(spoken([2, 2]))
        stream.send(spoken([3, 3]))
        # A refused END has closed the sequence, but no audio that was taken is lost.
        with pytest.raises(errors.InvalidRequest):
            stream.finish(spoken([4]))
        assert stream.finish().text == "W1 W3"


def test_a_stream_that_is_left_unresumed_tells_nobody() -> None:
    server = TalkingServer(dict.fromkeys(range(1, 1000), connection_refused))
    with StreamingClient(via=server).stream(resume=Resume(resume_seconds=0.001)) as stream:
        stream.send(TALK)
        with pytest.raises(errors.ResumeFailed):
            stream.send(TALK)
    assert all(not step.end for step in server.steps)


def test_a_request_without_an_answer_frees_its_sequence() -> None:
    server = TalkingServer({1: no_answer})
    play(server, TALK)
    assert server.sequences == {}


def test_an_interrupted_request_is_no_part_of_the_stream() -> None:
    def interrupted(server: TalkingServer, work: Any) -> dict[str, Any]:
        work()
        raise KeyboardInterrupt

    with StreamingClient(via=TalkingServer({1: interrupted})).stream(resume=True) as stream:
        stream.send(spoken([1]))
        with pytest.raises(KeyboardInterrupt):
            stream.send(spoken([2]))
        assert stream.finish(spoken([3])).text == "W1 W3"


class AsyncServer:
    """A talking server for asyncio, whose requests take a moment."""

    def __init__(self, server: TalkingServer) -> None:
        self._server = server
        self.url, self.timeout_s = server.url, server.timeout_s

    async def infer(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        outputs = self._server.infer(*args, **kwargs)
        await asyncio.sleep(0.001)
        return outputs

    async def is_ready(self, model: str) -> bool:
        return True

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("trouble", TROUBLES)
def test_asyncio_resumes_by_the_same_rules(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasr_client.session.delay_s", lambda *_: 0.0)

    async def run(server: TalkingServer) -> list[StreamResponse]:
        async with (
            AsyncStreamingClient(via=AsyncServer(server)) as client,
            client.stream(ENDPOINTS, want_result=True, resume=True) as stream,
        ):
            answers = [await stream.send(TALK[begin : begin + 6400]) for begin in range(0, TALK.size, 6400)]
            return [*answers, await stream.finish()]

    undisturbed = asyncio.run(run(TalkingServer()))
    answers = asyncio.run(run(TalkingServer({7: trouble})))
    assert [answer.text for answer in answers] == [answer.text for answer in undisturbed]
    assert final_of(answers) == final_of(undisturbed)


def test_a_cancelled_request_is_no_part_of_the_stream() -> None:
    async def run() -> str:
        client = AsyncStreamingClient(via=AsyncServer(server))
        async with client.stream(resume=True) as stream:
            await stream.send(spoken([1]))
            task = asyncio.create_task(stream.send(spoken([2])))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await stream.finish(spoken([3]))).text

    server = TalkingServer()
    assert asyncio.run(run()) == "W1 W3"
    # The sequence that was given up is ended, too.
    assert server.sequences == {}


def test_calls_of_one_asynchronous_stream_keep_their_order() -> None:
    async def run() -> str:
        client = AsyncStreamingClient(via=AsyncServer(TalkingServer()))
        async with client.stream() as stream:
            await asyncio.gather(*(stream.send(spoken([number])) for number in range(1, 9)))
            return (await stream.finish()).text

    assert asyncio.run(run()) == " ".join(f"W{number}" for number in range(1, 9))


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (unreachable(), Fate.REOPEN),
        (errors.timed_out("a:1", 1.0), Fate.REOPEN),
        (errors.UnknownSequence("no"), Fate.REOPEN),
        (errors.ModelNotFound("no"), Fate.REOPEN),
        (errors.ServerUnavailable("the server is shutting down", status="UNAVAILABLE"), Fate.REOPEN),
        (refused("SHUTTING_DOWN"), Fate.REOPEN),
        (refused("ENGINE_DIED"), Fate.REOPEN),
        (refused("SERVER_FULL"), Fate.RESEND),
        (refused("ANYTHING_ELSE"), Fate.RESEND),
        (errors.ServerError("no", code="STREAM_FAILED", status="INTERNAL"), Fate.REOPEN),
        (errors.ServerError("stub process is not healthy", status="INTERNAL"), Fate.REOPEN),
        (errors.ServerError("no", code="INTERNAL_ERROR", status="INTERNAL"), Fate.RAISE),
        (errors.ServerError("no JSON"), Fate.RAISE),
        (errors.InvalidRequest("no", code="INVALID_OPTION"), Fate.RAISE),
        (errors.StreamEnded("no", code="STREAM_ENDED"), Fate.RAISE),
        (errors.RequestCancelled("no"), Fate.RAISE),
        (errors.AudioError("no"), Fate.RAISE),
    ],
)
def test_the_fate_of_every_failure(error: errors.OasrError, fate: Fate) -> None:
    assert fate_of(error, closes=False, met=True) is fate
    assert fate_of(error, closes=False, met=False) is Fate.RAISE


def test_a_refused_end_needs_a_new_sequence() -> None:
    assert fate_of(refused("SERVER_FULL"), closes=True, met=True) is Fate.REOPEN


def test_delays_double_up_to_a_bound_and_vary() -> None:
    rng = random.Random(0)
    longest = [max(delay_s(attempt, unreachable(), rng) for _ in range(200)) for attempt in range(1, 12)]
    assert longest == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5, 5], rel=0.05)
    assert len({delay_s(5, unreachable(), rng) for _ in range(20)}) == 20
    assert delay_s(1, errors.UnknownSequence("no"), rng) == 0
    assert delay_s(2, errors.UnknownSequence("no"), rng) > 0


def test_policies() -> None:
    assert policy_of(False) is None
    assert policy_of(True) == Resume()
    assert policy_of(Resume(1, 2)) == Resume(1, 2)
    for wrong in ({"resume_seconds": 0}, {"max_replay_seconds": -1}, {"resume_seconds": float("nan")}):
        with pytest.raises(ValueError, match="must be above 0"):
            Resume(**wrong)


def test_the_answer_that_was_lost_is_not_heard_twice() -> None:
    server = TalkingServer({2: answer_lost, 4: answer_lost, 6: busy})
    assert play(server, TALK)[-1].text == "W1 W2 W3 W4 W5 W6"
    assert np.array_equal(server.finals[-1], TALK)
