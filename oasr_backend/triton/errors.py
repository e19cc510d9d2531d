"""Refusals as the client sees them: a Triton status, a stable code, one sentence."""

from typing import Literal

Code = Literal[
    "INVALID_INPUT",
    "INVALID_OPTION",
    "NO_CORRELATION_ID",
    "UNKNOWN_SEQUENCE",
    "STREAM_ENDED",
    "STREAM_RESTARTED",
    "STREAM_FAILED",
    "CLIP_FAILED",
    "SERVER_FULL",
    "SHUTTING_DOWN",
    "ENGINE_DIED",
    "INTERNAL_ERROR",
]
Status = Literal["INVALID_ARG", "UNAVAILABLE", "INTERNAL", "CANCELLED"]


class Refusal(Exception):
    """Why a request gets no result. `code` is machine-readable and stable; `status` is one that Triton knows."""

    def __init__(self, status: Status, code: Code, sentence: str):
        super().__init__(f"{code}: {sentence}")
        self.status: Status = status
        self.code: Code = code


def invalid_input(sentence: str) -> Refusal:
    return Refusal("INVALID_ARG", "INVALID_INPUT", sentence)


def invalid_option(sentence: str) -> Refusal:
    return Refusal("INVALID_ARG", "INVALID_OPTION", sentence)


def unknown_stream(correlation_id: int | str) -> Refusal:
    return Refusal(
        "INVALID_ARG",
        "UNKNOWN_SEQUENCE",
        f"no stream is open under correlation id {correlation_id!r}: its START was refused or it was idle too long; "
        "begin again with the START flag",
    )


def missing_correlation_id() -> Refusal:
    return Refusal("INVALID_ARG", "NO_CORRELATION_ID", "a stream needs a correlation id other than 0; set sequence_id")


def stream_ended(reason: str) -> Refusal:
    return Refusal(
        "INVALID_ARG",
        "STREAM_ENDED",
        f"the stream has ended early ({reason}); send END to get its text, then begin a new stream",
    )


def stream_failed(detail: str) -> Refusal:
    return Refusal("INTERNAL", "STREAM_FAILED", f"the stream was ended by an error ({detail}); begin a new stream")


def clip_failed(detail: str) -> Refusal:
    return Refusal("INTERNAL", "CLIP_FAILED", f"the clip could not be transcribed ({detail}); try it again alone")


def restarted() -> Refusal:
    return Refusal(
        "CANCELLED", "STREAM_RESTARTED", "the stream was begun anew by another START under the same correlation id"
    )


def full(open_streams: int, limit: int) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "SERVER_FULL",
        f"{open_streams} of {limit} streams are open; try again later, use another server, or raise max_sequences",
    )


def queue_full(queued: int, limit: int) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "SERVER_FULL",
        f"{queued} of {limit} clips are queued; try again later, use another server, or raise max_queued_clips",
    )


def internal_error() -> Refusal:
    return Refusal("INTERNAL", "INTERNAL_ERROR", "the request could not be handled; the server's log says why")


def shutting_down() -> Refusal:
    return Refusal("UNAVAILABLE", "SHUTTING_DOWN", "the model is being stopped; use another server or try again later")


def engine_died() -> Refusal:
    return Refusal(
        "UNAVAILABLE", "ENGINE_DIED", "the engine stopped unexpectedly and the server restarts; try again in a while"
    )
