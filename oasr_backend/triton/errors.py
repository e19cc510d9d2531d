"""Refusals as the client sees them: a Triton status, a stable code, one sentence."""

from typing import Literal

from oasr_backend.utils.shown import shown

Code = Literal[
    "INVALID_INPUT",
    "INVALID_OPTION",
    "UNKNOWN_SEQUENCE",
    "STREAM_ENDED",
    "STREAM_RESTARTED",
    "STREAM_FAILED",
    "CLIP_FAILED",
    "SERVER_FULL",
    "BACK_PRESSURE",
    "SHUTTING_DOWN",
    "ENGINE_DIED",
    "INTERNAL_ERROR",
]
Status = Literal["INVALID_ARG", "UNAVAILABLE", "INTERNAL", "CANCELLED"]

# Above every sentence of ours; what a client sent is shown in part, whatever it was.
_MAX_CHARACTERS = 700


class Refusal(Exception):
    """Why a request gets no result. `code` is machine-readable and stable; `status` is one that Triton knows."""

    def __init__(self, status: Status, code: Code, sentence: str):
        super().__init__(f"{code}: {_one_line(sentence)}")
        self.status: Status = status
        self.code: Code = code


def _one_line(sentence: str) -> str:
    """The sentence as Triton can carry it: one line of bounded length, of characters that UTF-8 can write."""
    line = " ".join(sentence.split()).encode("utf-8", "backslashreplace").decode()
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 3]}..."


def invalid_input(sentence: str) -> Refusal:
    return Refusal("INVALID_ARG", "INVALID_INPUT", sentence)


def invalid_option(sentence: str) -> Refusal:
    return Refusal("INVALID_ARG", "INVALID_OPTION", sentence)


def unknown_stream(correlation_id: int | str) -> Refusal:
    return Refusal(
        "INVALID_ARG",
        "UNKNOWN_SEQUENCE",
        f"no stream is open under correlation id {shown(correlation_id)}: its START was refused, it was idle too "
        "long or its last request was cancelled; begin again with the START flag",
    )


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


def full(open_streams: int, limit: int, setting: str, queued_seconds: float) -> Refusal:
    """`setting` is what the limit comes from."""
    return Refusal(
        "UNAVAILABLE",
        "SERVER_FULL",
        f"{open_streams} of {limit} streams are open ({setting}) with {queued_seconds:.1f} s of audio queued; "
        "try again later or use another server",
    )


def stream_is_ahead(queued_seconds: float, limit_seconds: float, resumes_at: float) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "BACK_PRESSURE",
        f"{queued_seconds:.1f} s of the stream's audio are queued and max_queued_seconds is {limit_seconds:g}; "
        f"wait for answers until {resumes_at:.1f} s are left, then send the chunk again",
    )


def streams_are_ahead(queued_seconds: float, limit_seconds: float, own_seconds: float, resumes_at: float) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "BACK_PRESSURE",
        f"{queued_seconds:.1f} s of audio are queued, {own_seconds:.1f} s of this stream, and max_total_queued_seconds "
        f"is {limit_seconds:g}; wait for answers until {resumes_at:.1f} s of the stream are left, then send the chunk "
        "again, or shorter ones",
    )


def chunk_too_long(seconds: float, limit_seconds: float) -> Refusal:
    return invalid_input(
        f"the chunk lasts {seconds:.1f} s and max_queued_seconds is {limit_seconds:g}; send shorter chunks"
    )


def clips_queued(queued: int, limit: int) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "SERVER_FULL",
        f"{queued} of {limit} clips are queued (max_queued_clips); try again later or use another server",
    )


def clip_audio_queued(queued_seconds: float, seconds: float, limit_seconds: float) -> Refusal:
    return Refusal(
        "UNAVAILABLE",
        "SERVER_FULL",
        f"{queued_seconds:.1f} s of audio are queued and {seconds:.1f} s more pass the limit of {limit_seconds:g} s "
        "(max_queued_clip_seconds); try again later or use another server",
    )


def too_many_clips(clips: int, limit: int) -> Refusal:
    return invalid_input(f"the request holds {clips} clips and max_queued_clips is {limit}; send fewer")


def request_too_long(seconds: float, limit_seconds: float) -> Refusal:
    return invalid_input(
        f"the request holds {seconds:.1f} s of audio and max_queued_clip_seconds is {limit_seconds:g}; "
        "send fewer or shorter clips"
    )


def internal_error() -> Refusal:
    return Refusal("INTERNAL", "INTERNAL_ERROR", "the request could not be handled; the server's log says why")


def shutting_down() -> Refusal:
    return Refusal("UNAVAILABLE", "SHUTTING_DOWN", "the model is being stopped; use another server or try again later")


def engine_died() -> Refusal:
    return Refusal(
        "UNAVAILABLE", "ENGINE_DIED", "the engine stopped unexpectedly and the server restarts; try again in a while"
    )
