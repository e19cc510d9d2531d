"""Where an utterance ends, as pure rules on the blank's probability, frame by frame."""

from dataclasses import dataclass, field
from typing import Literal

EndpointReason = Literal["no_speech", "silence", "length"]

# A segment that is long enough waits so long for a frame without speech.
_GRACE_S = 2.0
# A frame speaks whose blank is no more probable than this.
_SPEECH_BLANK = 0.8


@dataclass(frozen=True)
class EndpointRule:
    """Seconds after which a segment ends: of silence with no speech before it, of silence after speech, in all."""

    start_seconds: float = 5.0
    silence_seconds: float = 1.0
    max_seconds: float = 20.0


@dataclass(frozen=True)
class SpeechEvent:
    """Speech began or ended, at the start of frame `frame` of the stream."""

    kind: Literal["speech_start", "speech_end"]
    frame: int


@dataclass
class Endpointer:
    """Watches one stream. Frames are counted from the start of the stream, whatever the segment."""

    rule: EndpointRule
    seconds_per_frame: float
    frames: int = 0
    """Frames of the stream."""
    segment_frames: int = 0
    trailing: int = 0
    """Frames of the segment since the last speech."""
    heard_speech: bool = False
    events: list[SpeechEvent] = field(default_factory=list)
    """Not yet taken by anybody."""
    _silent_before: int = 0
    """Frames without speech before the segment."""
    _speaking: bool = False

    def feed(self, blank_probability: float) -> EndpointReason | None:
        """Takes one frame in; the reason when the segment ends with it."""
        self.frames += 1
        self.segment_frames += 1
        self.trailing += 1
        # One frame is enough: posteriors of a whole word often peak on a single one.
        if blank_probability <= _SPEECH_BLANK:
            self.trailing = 0
            self.heard_speech = True
            if not self._speaking:
                self._speaking = True
                self.events.append(SpeechEvent("speech_start", self.frames - 1))
        reason = self._reason()
        if self._speaking and (reason is not None or self._reached(self.trailing, self.rule.silence_seconds)):
            self._speaking = False
            self.events.append(SpeechEvent("speech_end", self.frames - self.trailing))
        if reason is not None:
            self._silent_before = self.silence
            self.segment_frames = self.trailing = 0
            self.heard_speech = False
        return reason

    @property
    def silence(self) -> int:
        """Frames since the last speech, whatever the segment."""
        return self.trailing + (0 if self.heard_speech else self._silent_before)

    def rewind(self, frames: int) -> None:
        """The last frames come again; no more than there is silence."""
        self.frames -= frames
        before = max(0, frames - self.segment_frames)
        self.segment_frames = max(0, self.segment_frames - frames)
        self.trailing = max(0, self.trailing - frames)
        self._silent_before -= before

    def take_events(self) -> list[SpeechEvent]:
        events, self.events = self.events, []
        return events

    def _reason(self) -> EndpointReason | None:
        rule = self.rule
        if self.heard_speech and self._reached(self.trailing, rule.silence_seconds):
            return "silence"
        if not self.heard_speech and self._reached(self.trailing, rule.start_seconds):
            return "no_speech"
        # Between tokens, because one that is cut in two would be heard twice; but not for ever.
        is_between = self.trailing > 0 or self._reached(self.segment_frames, rule.max_seconds + _GRACE_S)
        if is_between and self._reached(self.segment_frames, rule.max_seconds):
            return "length"
        return None

    def _reached(self, frames: int, seconds: float) -> bool:
        # Rounded, so that a bound that is a whole number of frames is met by that number.
        return frames >= max(1, round(seconds / self.seconds_per_frame, 6))
