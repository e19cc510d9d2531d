"""RESULT documents of two sequences as one stream's: pure functions on what the server says."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Fields that hold seconds from the start of the sequence, wherever they stand.
_TIMES = frozenset({"start", "end", "time"})
_PAUSES = ("silence", "no_speech")
_SPACELESS = ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "HIRAGANA", "KATAKANA", "HANGUL")
# The next word sounds no earlier than this after the end of a segment that a pause ended.
_PAUSE_S = 0.4
# A word's sound may begin so long before the time that is told for it, and is led in by so much.
_ONSET_S = 0.2
_LEAD_S = 0.6
# A segment that was cut for its length has no pause behind it.
_CUT_S = 0.12
# Without text in progress nothing older than this can become text: one step of the encoder and a long word.
_SILENT_S = 5.0


@dataclass(frozen=True)
class Before:
    """What earlier sequences of a stream have made final, and where the present one began.

    Attributes:
        segments: final segments, with the times of the stream.
        seconds: where the present sequence begins in the stream.
    """

    segments: tuple[Mapping[str, Any], ...] = ()
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The texts of the segments as one."""
        return join_texts([str(segment["text"]) for segment in self.segments])


@dataclass(frozen=True)
class Anchor:
    """Where a replay may begin: anywhere from `low` to `high` (seconds), behind `segments`, which are final."""

    low: float = 0.0
    high: float = 0.0
    segments: tuple[Mapping[str, Any], ...] = ()


def join_texts(texts: Sequence[str]) -> str:
    """Texts one after the other: parted by a space, except beside scripts that have none."""
    joined = ""
    for text in texts:
        joined += f" {text}" if _needs_space(joined, text) else text
    return joined


def stitched(document: Mapping[str, Any], before: Before) -> dict[str, Any]:
    """The RESULT of the present sequence as that of the whole stream.

    Times and `audio_seconds` count from the start of the stream, segments of before come first and are numbered
    through, texts include theirs. An endpoint's frame is counted on where its time tells how long a frame is, else it
    is left out.
    """
    if not before.seconds and not before.segments:
        return dict(document)
    whole = shifted(dict(document), before.seconds)
    head = before.text
    whole["text"] = join_texts([head, str(document.get("text", ""))])
    segments = [*before.segments, *whole.get("segments", ())]
    whole["segments"] = [{**segment, "id": number} for number, segment in enumerate(segments)]
    if "audio_seconds" in document:
        whole["audio_seconds"] = round(document["audio_seconds"] + before.seconds, 3)
    if "alternatives" in document:
        whole["alternatives"] = [{**one, "text": join_texts([head, str(one["text"])])} for one in whole["alternatives"]]
    if "endpoint" in document:
        whole["endpoint"] = _endpoint(document["endpoint"], before.seconds)
    return whole


def shifted(value: Any, seconds: float) -> Any:
    """A JSON value with every time in it later by `seconds`."""
    if isinstance(value, dict):
        return {
            key: round(one + seconds, 3) if key in _TIMES and isinstance(one, int | float) else shifted(one, seconds)
            for key, one in value.items()
        }
    return [shifted(one, seconds) for one in value] if isinstance(value, list) else value


def anchor_of(
    document: Mapping[str, Any], taken_s: float, limit_s: float, *, endpointing: bool = False, partials: bool = True
) -> Anchor | None:
    """Where a replay may begin, given the RESULT of the whole stream; None: no later than before.

    Behind the last segment that a pause ended; where nothing but silence has come since, later still. A segment that
    was cut for its length ends among words, and serves only where the pause is more than `limit_s` ago.

    Args:
        document: RESULT, with the times of the stream.
        taken_s: seconds of audio that the server has taken.
        limit_s: the most that may be replayed, in seconds.
        endpointing: whether the stream is known to be cut into segments; if not, a segment must show it.
        partials: whether the server tells of text in progress; if not, nothing can be known of silence.
    """
    segments = document.get("segments", ())
    finals = [segment for segment in segments if segment["is_final"]]
    if not endpointing and not any("endpoint" in segment for segment in finals):
        return None
    silent_s = taken_s - _SILENT_S
    last_end = float(finals[-1]["end"]) if finals else 0.0
    if partials and len(finals) == len(segments) and silent_s > last_end + _PAUSE_S:
        return Anchor(silent_s, silent_s, tuple(finals))
    pauses = [number for number, segment in enumerate(finals, 1) if segment.get("endpoint") in _PAUSES]
    count = pauses[-1] if pauses else 0
    room = _PAUSE_S
    if count < len(finals) and taken_s - (float(finals[count - 1]["end"]) if count else 0.0) > limit_s:
        count, room = len(finals), _CUT_S
    if not count:
        return None
    low = float(finals[count - 1]["end"])
    high = min(low + room, taken_s)
    for segment in segments[count : count + 1]:
        # Shortly before the next word: models hear little silence before speech in training.
        low = max(low, float(segment["start"]) - _LEAD_S)
        high = max(low, float(segment["start"]) - _ONSET_S)
    return Anchor(low, max(low, high), tuple(finals[:count]))


def _endpoint(endpoint: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    moved = dict(endpoint)
    frame, time = moved.pop("frame", None), moved.get("time")
    if time is not None:
        moved["time"] = round(time + seconds, 3)
        if frame and time > 0:
            moved["frame"] = frame + round(seconds * frame / time)
    return moved


def _needs_space(left: str, right: str) -> bool:
    if not left or not right or left[-1].isspace() or right[0].isspace():
        return False
    return not any(unicodedata.name(character, "").startswith(_SPACELESS) for character in (left[-1], right[0]))
