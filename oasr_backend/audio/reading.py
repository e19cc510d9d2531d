"""What a reader of files says of one, beside its samples."""

from dataclasses import dataclass

from oasr_backend.errors import AudioError


class Unreadable(AudioError):
    """A reader can make nothing of a file; another one may."""


@dataclass(frozen=True)
class Reading:
    """`promised_seconds` is what the header says of the length, None where it says nothing; `is_broken`: not all of
    what is there could be read.
    """

    format: str
    promised_seconds: float | None = None
    is_broken: bool = False
    tracks: int = 1
    """Of audio; the first is read."""
