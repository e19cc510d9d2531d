"""What has been decoded of one request: segments that are final, and the one that still grows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oasr_backend.decode.base import DecodeSession, DecodeStrategy
from oasr_backend.decode.endpoint import Endpointer, EndpointReason, SpeechEvent
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.scores import Needs
from oasr_backend.decode.words import TimedWord, needs_space
from oasr_backend.engine.rendering import Rendering
from oasr_backend.features.onset import OnsetDetector


@dataclass(frozen=True)
class Alternative:
    """Another text of the same audio, and its score."""

    text: str
    score: float


@dataclass(frozen=True)
class Segment:
    """A stretch of the transcript; times are seconds from the start of the audio.

    `words` and `alternatives` are None unless asked for; `endpoint` is why it ended before the audio did.
    """

    text: str
    start: float
    end: float
    confidence: float
    is_final: bool
    words: tuple[TimedWord, ...] | None = None
    alternatives: tuple[Alternative, ...] | None = None
    endpoint: EndpointReason | None = None


@dataclass(frozen=True)
class Endpoint:
    """Where a segment ended: the encoder frame behind it and its time, from the start of the stream, and why."""

    frame: int
    seconds: float
    reason: EndpointReason


@dataclass
class Final:
    """All segments of a transcript that are final, with what an output tells of them."""

    segments: list[Segment] = field(default_factory=list)
    """Those that have text."""
    text: str = ""
    tokens: tuple[int, ...] = ()
    timestamps: tuple[float, ...] = ()
    confidences: float = 0.0
    """Sum of the tokens' posteriors."""
    score: float = 0.0


@dataclass
class Transcript:
    """One request's decoding. A segment's session counts its frames from `base_frame` of the stream."""

    strategy: DecodeStrategy
    session: DecodeSession
    hotwords: HotwordGraph | None = None
    endpointer: Endpointer | None = None
    ends_segments: bool = False
    """Whether segments end where the endpointer says; it may be there for the events alone."""
    base_frame: int = 0
    frames: int = 0
    """Frames decoded."""
    rendering: Rendering = field(default_factory=Rendering)
    final: Final = field(default_factory=Final)
    endpoint: Endpoint | None = None
    """The last one, until an output has told of it."""
    onsets: OnsetDetector | None = None
    """There where the encoder begins anew with what is said behind a pause."""
    restart: int = 0
    """So many frames before its next chunk the encoder is to begin anew; 0: it goes on."""
    warnings: list[str] = field(default_factory=list)
    events: list[SpeechEvent] = field(default_factory=list)
    """Those that no output has told of."""

    @property
    def needs(self) -> Needs:
        """What its frames must be scored for."""
        needs = self.strategy.needs
        if self.endpointer is None or needs.top_k:
            return needs
        return Needs.union((needs, Needs(top_k=1)))

    def rewind(self, frames: int) -> None:
        """The last frames, all of silence, come again, be they of this segment or before it."""
        assert self.endpointer is not None
        self.frames -= frames
        self.strategy.rewind(self.session, min(frames, self.session.frames_seen))
        self.base_frame = min(self.base_frame, self.frames)
        self.endpointer.rewind(frames)


def join_texts(texts: Sequence[str]) -> str:
    """Texts of segments as one: parted by a space, except beside a script that has none."""
    joined = ""
    for text in texts:
        joined += f" {text}" if needs_space(joined, text) else text
    return joined
