"""A live stream's audio as its client declared it, to samples at the models' rate."""

from dataclasses import dataclass

import numpy as np

from oasr_backend.audio.bandwidth import NARROW_BAND, BandCheck
from oasr_backend.audio.encodings import Encoding, find_encoding
from oasr_backend.audio.rates import SAMPLE_RATE, check_rate
from oasr_backend.audio.resampling import Resampler
from oasr_backend.audio.samples import MAX_SAMPLE, as_float, check_range
from oasr_backend.errors import AudioError

# The tensor that holds samples of a dtype, and the encodings that it may stand for.
_TENSORS = {np.dtype(np.float32): ("WAV", "float32"), np.dtype(np.int16): ("PCM", "pcm16")}


@dataclass(frozen=True)
class LiveFormat:
    """What the START declared; without an encoding samples come as float32 or int16."""

    sample_rate: int = SAMPLE_RATE
    encoding: Encoding | None = None

    @classmethod
    def of(cls, encoding: str | None, sample_rate: int | None) -> "LiveFormat":
        """The format of these declarations, None where there is none. Raises AudioError."""
        found = None if encoding is None else find_encoding(encoding)
        if sample_rate is None:
            return cls(SAMPLE_RATE if found is None else found.rate, found)
        check_rate(sample_rate, "sample_rate is")
        return cls(sample_rate, found)


class LiveAudio:
    """Chunks of one stream, in order; a chunk that is refused leaves no trace."""

    def __init__(self, format: LiveFormat):
        self._format = format
        self._resampler = None if format.sample_rate == SAMPLE_RATE else Resampler(format.sample_rate)
        # Audio that says itself that it is of the telephone needs no warning.
        self._band = BandCheck() if format.sample_rate >= SAMPLE_RATE else None
        self._received = 0

    @property
    def seconds(self) -> float:
        """What was taken, with what the resampler holds back."""
        return self._received / self._format.sample_rate

    @property
    def warnings(self) -> tuple[str, ...]:
        """What there is to say of the audio so far."""
        return (NARROW_BAND,) if self._band is not None and self._band.is_narrow else ()

    def seconds_of(self, chunk: np.ndarray) -> float:
        """How long a chunk lasts as it was declared, before anybody has looked into it."""
        encoding = self._format.encoding
        width = encoding.width if encoding is not None and chunk.dtype == np.uint8 else 1
        return len(chunk) / (width * self._format.sample_rate)

    def take(self, chunk: np.ndarray, is_last: bool) -> np.ndarray:
        """A chunk [n] float32, int16, or uint8 of the declared encoding: the samples [m] that can be told of it.

        They are float32 or int16, at SAMPLE_RATE. Raises AudioError.
        """
        samples = self._samples(chunk)
        self._received += len(samples)
        if self._resampler is not None:
            samples = self._resampler.feed(as_float(samples), is_last)
            # The filter may go past what a sample may be.
            samples = np.clip(samples, -MAX_SAMPLE, MAX_SAMPLE)
        if self._band is not None:
            self._band.feed(samples)
        return samples

    def close(self) -> None:
        """Lets go of what is only needed for more audio."""
        self._resampler = None

    def _samples(self, chunk: np.ndarray) -> np.ndarray:
        encoding = self._format.encoding
        if not len(chunk):
            # Who ends a stream without audio need not know how it was encoded.
            return np.zeros(0, dtype=np.float32)
        if chunk.dtype == np.uint8:
            if encoding is None:
                raise AudioError(
                    "BYTES is given, and START declared no encoding; declare one there, or send WAV or PCM"
                )
            return encoding.samples(chunk)[:, 0]
        tensor, own = _TENSORS[chunk.dtype]
        if encoding is not None and encoding.name != own:
            raise AudioError(f"{tensor} is given, and START declared encoding {encoding.name}; send that as BYTES")
        if chunk.dtype != np.int16:
            check_range(chunk)
        return chunk
