"""Streams whose server dies in the middle and comes back: no word may be lost, none be heard twice."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from oasr_backend.serve import RunningServer
from oasr_client import AsyncStreamingClient, Resume, StreamingClient, StreamResponse
from oasr_client.errors import OasrError
from tests.server.deadly_model import DEADLY_SAMPLES, deadly_repository
from tests.server.host import Host
from tests.server.support import (
    CHUNK,
    RATE,
    STREAMING,
    TIMEOUT_S,
    Stream,
    Wire,
    clip,
    cut,
    noise,
    outcome_of,
    references,
    together,
)

pytestmark = pytest.mark.usefixtures("tritonserver")

NAMES = ("digits.flac", "command.flac", "number.flac", "command.flac", "digits.flac")
PLAIN: dict[str, Any] = {}
CUT: dict[str, Any] = {"endpointing": True}
DETAILED = {**CUT, "word_timestamps": True, "endpoint_silence_ms": 600, "vad_events": True}
PATIENT = Resume(resume_seconds=120)


def speech() -> np.ndarray:
    """Clips with pauses of different lengths between them, over a little noise."""
    parts = []
    for name, pause_s in zip(NAMES, (0.4, 1.5, 0.9, 2.2, 0.3), strict=True):
        parts += [clip(name), np.zeros(round(pause_s * RATE), dtype=np.float32)]
    samples = np.concatenate(parts)
    return samples + noise(len(samples) / RATE, -70)[: len(samples)]


PIECES = cut(speech(), CHUNK)
TEXT = " ".join(references()[name] for name in NAMES)


@dataclass(frozen=True)
class Talk:
    """A stream that waits before the piece `at` until its server has been lost."""

    protocol: str
    is_async: bool
    options: dict[str, Any]
    at: int

    def play(self, url: str, until_lost: Callable[[], object]) -> list[StreamResponse]:
        """All answers; every piece is sent once."""
        if self.is_async:
            return asyncio.run(self._play_async(url, until_lost))
        with (
            StreamingClient(url, self.protocol, TIMEOUT_S) as client,
            client.stream(self.options, want_result=True, resume=PATIENT) as stream,
        ):
            answers = []
            for number, piece in enumerate(PIECES):
                if number == self.at:
                    until_lost()
                answers.append(stream.finish(piece) if number == len(PIECES) - 1 else stream.send(piece))
            assert answers[-1].resumes == stream.resumes
            return answers

    async def _play_async(self, url: str, until_lost: Callable[[], object]) -> list[StreamResponse]:
        async with (
            AsyncStreamingClient(url, self.protocol, TIMEOUT_S) as client,
            client.stream(self.options, want_result=True, resume=PATIENT) as stream,
        ):
            answers = []
            for number, piece in enumerate(PIECES):
                if number == self.at:
                    await asyncio.to_thread(until_lost)
                answers.append(await (stream.finish(piece) if number == len(PIECES) - 1 else stream.send(piece)))
            return answers


# Lost within words, in pauses and before the last piece.
LAST = len(PIECES) - 1
TALKS = (
    Talk("grpc", False, PLAIN, 7),
    Talk("http", True, PLAIN, LAST),
    Talk("grpc", True, CUT, 9),
    Talk("http", False, CUT, 14),
    Talk("grpc", False, DETAILED, 18),
    Talk("http", True, DETAILED, 23),
)


@pytest.fixture(scope="module")
def host(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """First with a server whose engine can be made to die."""
    folder = tmp_path_factory.mktemp("resume")
    host = Host(folder)
    try:
        host.start(model_repository=deadly_repository(folder / "models", STREAMING))
        yield host
    finally:
        host.stop()


def undisturbed(host: Host, options: dict[str, Any]) -> list[StreamResponse]:
    with StreamingClient(host.url("grpc")) as client, client.stream(options, want_result=True) as stream:
        return [*map(stream.send, PIECES[:-1]), stream.finish(PIECES[-1])]


def played_through(host: Host, kill: Callable[[RunningServer], object]) -> list[list[StreamResponse]]:
    """The answers of all talks, whose server is killed when they have come to their places, and started again."""
    arrived, lost = threading.Barrier(len(TALKS) + 1), threading.Event()

    def until_lost() -> None:
        arrived.wait(2 * TIMEOUT_S)
        assert lost.wait(TIMEOUT_S)

    with ThreadPoolExecutor(len(TALKS)) as pool:
        runs = [pool.submit(talk.play, host.url(talk.protocol), until_lost) for talk in TALKS]
        try:
            arrived.wait(2 * TIMEOUT_S)
            kill(host.server)
            assert host.server.wait(60)
            host.server.stop(force=True)
        finally:
            arrived.abort()
            # From now on clients ask a server that is not there.
            lost.set()
        host.start(models=(STREAMING,))
        return [run.result(4 * TIMEOUT_S) for run in runs]


def kill_engine(server: RunningServer) -> None:
    with Wire(server) as wire:
        outcome_of(lambda: Stream(wire).send(np.zeros(DEADLY_SAMPLES, dtype=np.float32)))


def kill_process(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGKILL)


@pytest.mark.parametrize("kill", [kill_engine, kill_process])
def test_streams_outlive_their_server_without_losing_a_word(
    host: Host, kill: Callable[[RunningServer], object]
) -> None:
    outcomes = played_through(host, kill)
    expected = together(lambda options: undisturbed(host, options), (PLAIN, CUT, DETAILED))
    assert expected[0][-1].text == TEXT
    for talk, answers in zip(TALKS, outcomes, strict=True):
        others = expected[(PLAIN, CUT, DETAILED).index(talk.options)]
        assert len(answers) == len(PIECES)
        assert answers[-1].resumes >= 1
        assert_same_talk(answers[-1], others[-1])
        assert endpoints(answers) == endpoints(others)
        assert [kind for kind, _ in events(answers)] == [kind for kind, _ in events(others)]
        assert [at for _, at in events(answers)] == pytest.approx([at for _, at in events(others)], abs=0.25)
        # What was final stays, and no answer falls behind the one before it.
        for earlier, later in pairwise(answers):
            finals = [segment["text"] for segment in segments(earlier) if segment["is_final"]]
            assert [segment["text"] for segment in segments(later)][: len(finals)] == finals
            assert later.result is not None and earlier.result is not None
            assert later.result["audio_seconds"] >= earlier.result["audio_seconds"]


def segments(answer: StreamResponse) -> Sequence[dict[str, Any]]:
    assert answer.result is not None
    found: Sequence[dict[str, Any]] = answer.result["segments"]
    return found


def events(answers: Sequence[StreamResponse]) -> list[tuple[str, float]]:
    results = [answer.result or {} for answer in answers]
    return [(event["type"], event["time"]) for result in results for event in result.get("speech_events", ())]


def endpoints(answers: Sequence[StreamResponse]) -> list[str]:
    return [answer.result["endpoint"]["reason"] for answer in answers if answer.result and "endpoint" in answer.result]


def assert_same_talk(found: StreamResponse, expected: StreamResponse) -> None:
    """The same words at the same times; a replay begins at another frame, which moves peaks by a few."""
    assert found.text == expected.text
    assert found.result is not None and expected.result is not None
    assert found.result["text"] == found.text
    assert found.result["is_final"] is True
    assert found.result["audio_seconds"] == pytest.approx(expected.result["audio_seconds"], abs=0.002)
    ours, theirs = segments(found), segments(expected)
    assert [segment["text"] for segment in ours] == [segment["text"] for segment in theirs]
    assert [segment["id"] for segment in ours] == list(range(len(ours)))
    for segment, other in zip(ours, theirs, strict=True):
        words, same_words = segment.get("words", []), other.get("words", [])
        assert [word["word"] for word in words] == [word["word"] for word in same_words]
        for one, same in [(segment, other), *zip(words, same_words, strict=True)]:
            assert one["start"] == pytest.approx(same["start"], abs=0.2)
            assert one["end"] == pytest.approx(same["end"], abs=0.2)


def test_a_stream_whose_server_stays_away_fails_with_a_sentence(host: Host) -> None:
    """The last test here: nobody starts the server again."""
    impatient = Resume(resume_seconds=1.0)
    with (
        StreamingClient(host.url("grpc")) as client,
        client.stream(resume=impatient) as stream,
        client.stream(resume=impatient) as other,
    ):
        stream.send(PIECES[0])
        host.server.stop(force=True)
        with pytest.raises(OasrError, match=r"the stream could not be resumed within .* cannot reach the server"):
            stream.send(PIECES[1])
        # One that has nothing to lose does not wait for a server that was waited for in vain.
        with pytest.raises(OasrError, match=r"^cannot reach the server"):
            other.send(PIECES[0])
