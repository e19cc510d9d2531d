"""When a lost stream is opened again, and for how long that is tried: pure rules."""

import random
from dataclasses import dataclass
from enum import Enum

from oasr_client import errors

# With these the server gives its streams up; any other refusal of its own leaves them as they were.
_STREAMS_GONE = ("SHUTTING_DOWN", "ENGINE_DIED")
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 5.0


@dataclass(frozen=True)
class Resume:
    """How a stream that was lost with its server is resumed.

    Attributes:
        resume_seconds: seconds from the first failure of a request after which no other attempt is begun.
        max_replay_seconds: seconds of audio kept for sending again, the most that may lie behind the last pause at
            which the server made a segment final (without endpointing: the longest stream that can be resumed).
    Raises:
        ValueError: one of them is not above 0.
    """

    resume_seconds: float = 60.0
    max_replay_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("resume_seconds", "max_replay_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be above 0")


class Fate(Enum):
    """What follows from a failed request."""

    RAISE = "raise"
    RESEND = "resend"
    """It was not taken; the same request again."""
    REOPEN = "reopen"
    """Its stream is gone, or nobody knows whether the request was taken: a new sequence."""


def policy_of(resume: "bool | Resume") -> Resume | None:
    """The policy for what a caller may pass: True is the default one, False none."""
    if isinstance(resume, Resume):
        return resume
    return Resume() if resume else None


def fate_of(error: errors.OasrError, *, closes: bool, met: bool) -> Fate:
    """What to do about a failed request of a stream.

    Args:
        error: why it failed.
        closes: the request was the END of an open sequence; refused, it has closed it all the same.
        met: the server has answered this client before; one that was never there is not waited for.
    """
    if not met or isinstance(error, errors.ResumeFailed):
        return Fate.RAISE
    if isinstance(error, errors.ServerUnavailable):
        return Fate.RESEND if took_nothing(error) and not closes else Fate.REOPEN
    lost = (errors.UnknownSequence, errors.ServerTimeout, errors.ModelNotFound)
    return Fate.REOPEN if isinstance(error, lost) or is_failure(error) else Fate.RAISE


def took_nothing(error: errors.OasrError) -> bool:
    """Whether the server refused a request and left its stream as it was."""
    if isinstance(error, errors.ServerUnavailable):
        return bool(error.code) and error.code not in _STREAMS_GONE
    return isinstance(error, errors.InvalidRequest) and not isinstance(error, errors.UnknownSequence)


def is_failure(error: errors.OasrError) -> bool:
    """Whether the server failed at the audio itself, so that sending it again may well fail again."""
    if error.code in ("STREAM_FAILED", "ENGINE_DIED"):
        return True
    return isinstance(error, errors.ServerError) and not error.code and error.status == "INTERNAL"


def delay_s(attempt: int, error: errors.OasrError, rng: random.Random) -> float:
    """Seconds before attempt number `attempt` (1 is the first repetition): doubling, with jitter.

    A server that answers that it does not know the stream is there, so the first repetition need not wait.
    """
    if attempt == 1 and (isinstance(error, errors.UnknownSequence) or error.code == "STREAM_FAILED"):
        return 0.0
    longest = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(attempt - 1, 16))
    return longest * rng.uniform(0.5, 1.0)
