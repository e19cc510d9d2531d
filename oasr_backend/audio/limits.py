"""What is refused of a file, and how much of it has been used up."""

import time
from dataclasses import dataclass

from oasr_backend.errors import AudioError, ConfigError

_LONGEST_S = 7200.0


@dataclass(frozen=True)
class AudioLimits:
    """Limits of `audio_decode`."""

    max_audio_mib: int = 256
    """Largest file, in MiB."""
    max_audio_seconds: float | None = None
    """Longest file; also the seconds of a batch, as many as its longest file in every row; None: 7,200."""
    max_decode_seconds: float = 180.0
    """Most processor time for decoding one file, in seconds."""

    def __post_init__(self) -> None:
        for name in ("max_audio_mib", "max_decode_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        # What the engine takes under this name.
        if not self.longest_seconds >= 0:
            raise ConfigError(f"max_audio_seconds is {self.max_audio_seconds}; it must be at least 0")

    @property
    def longest_seconds(self) -> float:
        """`max_audio_seconds` as it is meant."""
        return _LONGEST_S if self.max_audio_seconds is None else self.max_audio_seconds


class Allowance:
    """What one file may still take of the limits: size, seconds of audio, time of this thread's processor."""

    def __init__(self, limits: AudioLimits, size: int):
        """`size` in bytes. Raises AudioError for a file that is too large."""
        if size > limits.max_audio_mib << 20:
            raise AudioError(
                f"AUDIO has {size / (1 << 20):.0f} MiB and max_audio_mib is {limits.max_audio_mib}; cut it"
            )
        self._limits = limits
        self.deadline = time.thread_time() + limits.max_decode_seconds
        """Of this thread's processor time, in seconds."""

    def check(self, seconds: float) -> None:
        """Raises AudioError when so many seconds of audio, or the work that they took, are too much."""
        if seconds > self._limits.longest_seconds:
            raise AudioError(
                f"AUDIO lasts more than max_audio_seconds, {self._limits.longest_seconds:g}; cut or stream it"
            )
        if time.thread_time() > self.deadline:
            raise AudioError(
                f"AUDIO takes more than max_decode_seconds, {self._limits.max_decode_seconds:g}, to decode; "
                "cut it, or send it in a plainer format, such as WAV"
            )
