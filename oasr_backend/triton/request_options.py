"""What a request may ask for, as Triton request parameters name it."""

from dataclasses import dataclass, fields
from typing import Any

from oasr_backend.engine import DecodingOptions
from oasr_backend.triton.errors import invalid_option


@dataclass(frozen=True)
class ClipOptions:
    """Options of a clip. None, and what is left out: as the engine is configured."""

    decode_method: str | None = None
    n_best: int | None = None
    word_timestamps: bool | None = None
    hotwords: str | None = None
    """A JSON list of phrases, or of objects of `phrase` and `score`."""
    hotword_score: float | None = None

    @property
    def decoding(self) -> dict[str, Any]:
        """Those that the engine takes, by name."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OWN}
        return {name: value for name, value in given.items() if value is not None}

    def check(self) -> None:
        """Raises Refusal for a value that is impossible in itself."""
        try:
            DecodingOptions.coerce(self.decoding)
        except ValueError as error:
            raise invalid_option(str(error)) from error


@dataclass(frozen=True)
class StreamOptions(ClipOptions):
    """Options of a stream, given on its START."""

    chunk_size: int | None = None
    """Encoder frames per step."""
    two_pass: bool | None = None
    endpointing: bool | None = None
    endpoint_silence_ms: float | None = None
    endpoint_start_ms: float | None = None
    endpoint_max_ms: float | None = None
    endpoint_history: str | None = None
    vad_events: bool | None = None
    trace: bool | None = None
    """True: the log tells of every chunk where its time went."""
    oasr_resumed: bool | None = None
    """True: the stream takes the place of one that was lost; it is counted."""


# Options that are no decoding options.
_OWN = frozenset({"chunk_size", "trace", "oasr_resumed"})
