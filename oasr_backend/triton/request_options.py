"""What a request may ask for, as Triton request parameters name it."""

from dataclasses import dataclass, fields
from typing import Any

from oasr_backend.engine import DecodingOptions
from oasr_backend.triton.errors import invalid_option
from oasr_backend.utils.shown import shown

# Nobody needs more steps, and a number without end would only be an attempt at something.
_MAX_PRIORITY = 1000


@dataclass(frozen=True)
class RequestOptions:
    """Options of streams and of clips. None, and what is left out: as the engine is configured."""

    decode_method: str | None = None
    n_best: int | None = None
    word_timestamps: bool | None = None
    hotwords: str | None = None
    """A JSON list of phrases, or of objects of `phrase` and `score`."""
    hotword_score: float | None = None
    two_pass: bool | None = None

    @property
    def decoding(self) -> dict[str, Any]:
        """Those that the engine takes as decoding options, by name."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OWN}
        return {name: value for name, value in given.items() if value is not None}

    def check(self) -> None:
        """Raises Refusal for a value that is impossible in itself."""
        try:
            DecodingOptions.coerce(self.decoding)
        except ValueError as error:
            raise invalid_option(str(error)) from error


@dataclass(frozen=True)
class ClipOptions(RequestOptions):
    """Options of a clip."""

    queue_priority: int | None = None
    """Of clips that wait the lower go first, until one has waited `max_wait_time`."""

    def check(self) -> None:
        super().check()
        if self.queue_priority is not None and abs(self.queue_priority) > _MAX_PRIORITY:
            raise invalid_option(
                f"queue_priority is {shown(self.queue_priority)}; it must be from -{_MAX_PRIORITY} to {_MAX_PRIORITY}, "
                "lower goes first"
            )


@dataclass(frozen=True)
class StreamOptions(RequestOptions):
    """Options of a stream, given on its START."""

    chunk_size: int | None = None
    """Encoder frames per step."""
    partials: bool | None = None
    """False: answers before the last hold final segments alone."""
    endpointing: bool | None = None
    endpoint_silence_ms: float | None = None
    endpoint_start_ms: float | None = None
    endpoint_max_ms: float | None = None
    endpoint_history: str | None = None
    vad_events: bool | None = None


# Options that are no decoding options.
_OWN = frozenset({"chunk_size", "queue_priority"})


def foreign_options(options: type[RequestOptions]) -> dict[str, str]:
    """Options of the other kind of request by name, and why they are refused here."""
    own = {field.name for field in fields(options)}
    of_streams = "is an option of streams; leave it out, or stream the clip"
    of_clips = "is an option of clips, for live streams never wait; leave it out"
    reasons = {
        **{field.name: of_streams for field in fields(StreamOptions)},
        **{field.name: of_clips for field in fields(ClipOptions)},
    }
    return {name: reason for name, reason in reasons.items() if name not in own}
