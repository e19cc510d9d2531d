"""A server that understands a made-up language, so that what resuming does to words and times can be seen exactly.

Audio is int16; a run of samples of one value other than 0 is the word of that number, 0 is silence. With endpointing a
second of silence behind a word makes a segment final.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from oasr_client import errors
from oasr_client.transport import SequenceStep

RATE = 16_000
PAUSE = RATE
BLOCK = RATE // 10


def spoken(blocks: Sequence[int]) -> np.ndarray:
    """Audio of a tenth of a second per number."""
    return np.repeat(np.array(blocks, dtype=np.int16), BLOCK)


def unreachable() -> errors.OasrError:
    return errors.unreachable("127.0.0.1:1", "connection refused")


def refused(code: str) -> errors.OasrError:
    return errors.ServerUnavailable("not now", code=code, status="UNAVAILABLE")


@dataclass
class Sequence_:
    """A stream as the server knows it."""

    endpointing: bool
    samples: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int16))
    told: int = 0

    def words(self) -> list[tuple[int, int, int]]:
        """(number, first sample, behind the last) of every run."""
        edges = np.flatnonzero(np.diff(self.samples)) + 1
        bounds = [0, *edges.tolist(), self.samples.size]
        return [(int(self.samples[a]), a, b) for a, b in pairwise(bounds) if a < b and self.samples[a]]

    def segments(self, is_final: bool) -> list[dict[str, Any]]:
        groups: list[list[tuple[int, int, int]]] = []
        for word in self.words():
            if not groups or (self.endpointing and word[1] - groups[-1][-1][2] >= PAUSE):
                groups.append([])
            groups[-1].append(word)
        found = []
        for number, group in enumerate(groups):
            ended = self.endpointing and (number < len(groups) - 1 or self.samples.size - group[-1][2] >= PAUSE)
            segment: dict[str, Any] = {
                "id": number,
                "text": " ".join(f"W{word[0]}" for word in group),
                "start": round(group[0][1] / RATE, 3),
                "end": round(group[-1][2] / RATE, 3),
                "is_final": ended or is_final,
                "words": [
                    {"word": f"W{word}", "start": round(a / RATE, 3), "end": round(b / RATE, 3)} for word, a, b in group
                ],
            }
            if ended:
                segment["endpoint"] = "silence"
            found.append(segment)
        return found

    def result(self, is_final: bool) -> dict[str, Any]:
        segments = self.segments(is_final)
        ended = [segment for segment in segments if "endpoint" in segment]
        result: dict[str, Any] = {
            "text": " ".join(segment["text"] for segment in segments),
            "is_final": is_final,
            "segments": segments,
            "audio_seconds": round(self.samples.size / RATE, 3),
        }
        if len(ended) > self.told:
            frame = round(ended[-1]["end"] * 25) + 25
            result["endpoint"] = {"frame": frame, "time": round(frame / 25, 3), "reason": "silence"}
            self.told = len(ended)
        return result


Trouble = Callable[["TalkingServer", Callable[[], dict[str, Any]]], dict[str, Any]]


@dataclass
class TalkingServer:
    """A `Transport`; `troubles` says what happens to the requests of these numbers, counted from 0."""

    troubles: dict[int, Trouble] = field(default_factory=dict)
    url: str = "127.0.0.1:1"
    timeout_s: float = 1.0
    requests: int = 0
    steps: list[SequenceStep] = field(default_factory=list)
    sequences: dict[Any, Sequence_] = field(default_factory=dict)
    finals: list[np.ndarray] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str],
        *,
        sequence: SequenceStep | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        assert sequence is not None
        ((_, array),) = inputs.items()
        with self._lock:
            number, self.requests = self.requests, self.requests + 1
            self.steps.append(sequence)
            trouble = self.troubles.get(number)

            def work() -> dict[str, Any]:
                return self._answer(sequence, array[0], outputs, parameters or {})

            return work() if trouble is None else trouble(self, work)

    def _answer(
        self, step: SequenceStep, samples: np.ndarray, outputs: Sequence[str], parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        if step.start:
            self.sequences[step.id] = Sequence_(bool(parameters.get("endpointing")))
        if step.id not in self.sequences:
            raise errors.UnknownSequence("begin again", code="UNKNOWN_SEQUENCE")
        stream = self.sequences[step.id]
        stream.samples = np.concatenate([stream.samples, samples])
        result = stream.result(step.end)
        if step.end:
            self.finals.append(self.sequences.pop(step.id).samples)
        answers = {"TRANSCRIPTS": np.array([result["text"].encode()], dtype=object)}
        if "RESULT" in outputs:
            answers["RESULT"] = np.array([json.dumps(result).encode()], dtype=object)
        return answers

    def is_ready(self, model: str) -> bool:
        return True

    def close(self) -> None:
        pass

    def __enter__(self) -> "TalkingServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# What may happen to a request.


def connection_refused(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The server went away before the request, with all it held."""
    server.sequences.clear()
    raise unreachable()


def answer_lost(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The request was taken, and then the server went away."""
    work()
    server.sequences.clear()
    raise unreachable()


def restarted(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The server went away and came back between two requests."""
    server.sequences.clear()
    return work()


def no_answer(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The request was taken and never answered; the server lives on."""
    work()
    raise errors.timed_out(server.url, 1.0)


def full(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    raise refused("SERVER_FULL")


def busy(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """So much audio is queued that the chunk was not taken."""
    raise refused("TOO_MUCH_QUEUED")


def engine_died(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    server.sequences.clear()
    raise refused("ENGINE_DIED")


def stream_failed(server: TalkingServer, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    server.sequences.clear()
    raise errors.ServerError("the step failed", code="STREAM_FAILED", status="INTERNAL")


TROUBLES = (connection_refused, answer_lost, restarted, no_answer, full, busy, engine_died, stream_failed)
