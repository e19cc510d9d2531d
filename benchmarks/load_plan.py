"""What the users of a load test do: pure rules, without locust."""

import random
from dataclasses import dataclass
from enum import Enum

import numpy as np

from oasr_client import audio


class Ending(Enum):
    """How a call ends."""

    FINISHED = "finished"
    ABANDONED = "abandoned"
    """The caller vanishes: no END ever comes."""
    CANCELLED = "cancelled"
    """The last request is cancelled while it is being worked on, then the stream is ended."""


@dataclass(frozen=True)
class Mix:
    """Shares of what happens, each from 0 to 1.

    Attributes:
        abandoned: of the calls, those that are abandoned.
        cancelled: those whose last request is cancelled.
    """

    abandoned: float = 0.1
    cancelled: float = 0.1


@dataclass(frozen=True)
class Call:
    """One call of a user.

    Attributes:
        recording: the index of its recording.
        phase_s: seconds until it begins, a part of a chunk, so that calls are not in step.
        ending: how it ends.
        chunks: how many chunks are sent; all of the recording's where it is finished.
    """

    recording: int
    phase_s: float
    ending: Ending
    chunks: int


def plan_call(rng: random.Random, chunk_counts: list[int], chunk_s: float, mix: Mix) -> Call:
    """A call by chance; `chunk_counts` are those of the recordings."""
    recording = rng.randrange(len(chunk_counts))
    chance = rng.random()
    ending = Ending.FINISHED
    if chance < mix.abandoned:
        ending = Ending.ABANDONED
    elif chance < mix.abandoned + mix.cancelled:
        ending = Ending.CANCELLED
    total = chunk_counts[recording]
    # A START that is taken back may have opened a stream or not.
    least = 2 if ending is Ending.CANCELLED else 1
    if least > total:
        ending = Ending.FINISHED
    chunks = total if ending is Ending.FINISHED else rng.randint(least, total)
    return Call(recording, rng.uniform(0, chunk_s), ending, chunks)


def mixed_lengths(wave: np.ndarray, seconds: tuple[float, ...]) -> list[np.ndarray]:
    """The beginnings of a recording, of these lengths: [samples] each."""
    return [wave[: round(one * audio.SAMPLE_RATE)] for one in seconds]
