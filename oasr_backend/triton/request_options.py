"""What a request may ask for, as Triton request parameters name it."""

from dataclasses import dataclass, fields
from typing import Any

from oasr_backend.audio.channels import MAX_CHANNELS
from oasr_backend.audio.encodings import find_encoding
from oasr_backend.audio.files import RawFormat
from oasr_backend.audio.live import LiveFormat
from oasr_backend.audio.rates import check_rate
from oasr_backend.errors import AudioError
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
        # `audio_decode` knows the names of these options and loads no engine.
        from oasr_backend.engine import DecodingOptions

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
    sample_rate: int | None = None
    """Of the audio, in Hz; 16000, and 8000 with a G.711 encoding."""
    encoding: str | None = None
    """Of the tensor BYTES: pcm16, float32, mulaw or alaw."""

    @property
    def audio_format(self) -> LiveFormat:
        """How the stream's audio comes. Raises AudioError."""
        return LiveFormat.of(self.encoding, self.sample_rate)

    def check(self) -> None:
        super().check()
        try:
            _ = self.audio_format
        except AudioError as error:
            raise invalid_option(str(error)) from error


@dataclass(frozen=True)
class FileOptions:
    """Options of a file; the first three describe one that is raw, which has no header to say so."""

    encoding: str | None = None
    """pcm16, float32, mulaw or alaw; left out, the file says itself what it is."""
    sample_rate: int | None = None
    """In Hz; 16000, and 8000 with a G.711 encoding."""
    channels: int | None = None
    """Interleaved; 1."""
    channel: int | None = None
    """The one to hear, counted from 0; left out, all are mixed."""

    @property
    def raw(self) -> RawFormat | None:
        """What is declared of raw audio; None for a file with a header. Raises AudioError."""
        if self.encoding is None:
            given = [name for name in ("sample_rate", "channels") if getattr(self, name) is not None]
            if given:
                raise AudioError(
                    f"{' and '.join(given)} describe raw audio; name its encoding, too, or leave that to the file's "
                    "header"
                )
            return None
        encoding = find_encoding(self.encoding)
        rate = encoding.rate if self.sample_rate is None else self.sample_rate
        channels = 1 if self.channels is None else self.channels
        check_rate(rate, "sample_rate is")
        if not 1 <= channels <= MAX_CHANNELS:
            raise AudioError(f"channels is {channels}; it must be 1 to {MAX_CHANNELS}")
        return RawFormat(encoding, rate, channels)

    def check(self) -> None:
        """Raises Refusal for a value that is impossible in itself."""
        try:
            raw = self.raw
        except AudioError as error:
            raise invalid_option(str(error)) from error
        if self.channel is not None and self.channel < 0:
            raise invalid_option(f"channel is {self.channel}; channels count from 0")
        if raw is not None and self.channel is not None and self.channel >= raw.channels:
            raise invalid_option(f"channel is {self.channel} and channels is {raw.channels}; they count from 0")


# Options that are no decoding options.
_OWN = frozenset({"chunk_size", "queue_priority", "sample_rate", "encoding"})

# `oasr_transcribe` hands its options to both of its models; each passes over the other's.
CLIP_OPTIONS = tuple(field.name for field in fields(ClipOptions))
FILE_OPTIONS = tuple(field.name for field in fields(FileOptions))


def foreign_options(options: type[RequestOptions]) -> dict[str, str]:
    """Options of the other kind of request by name, and why they are refused here."""
    own = {field.name for field in fields(options)}
    of_streams = "is an option of streams; leave it out, or stream the clip"
    of_clips = "is an option of clips, for live streams never wait; leave it out"
    of_files = "is an option of files; leave it out, or send the file itself to oasr_transcribe"
    reasons = {
        **{field.name: of_files for field in fields(FileOptions)},
        **{field.name: of_streams for field in fields(StreamOptions)},
        **{field.name: of_clips for field in fields(ClipOptions)},
    }
    return {name: reason for name, reason in reasons.items() if name not in own}
