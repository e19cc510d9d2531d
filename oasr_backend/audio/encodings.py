"""Raw encodings: samples without a container, little-endian."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import soundfile

from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.audio.samples import as_float, check_range
from oasr_backend.errors import AudioError


@dataclass(frozen=True)
class Encoding:
    """How bytes are samples: `width` bytes a sample, `rate` Hz where none is declared."""

    name: str
    width: int
    rate: int
    convert: Callable[[np.ndarray], np.ndarray]
    """uint8 [n * width] to float32 [n] in [-1, 1]."""

    def samples(self, data: np.ndarray, channels: int = 1) -> np.ndarray:
        """uint8 [n] as float32 [frames, channels]. Raises AudioError for part of a frame, NaN and impossible values."""
        frame = self.width * channels
        if len(data) % frame:
            raise AudioError(
                f"{len(data)} bytes are no whole number of {self.name} frames of {frame} bytes; send whole frames, "
                "and check what is declared"
            )
        samples = self.convert(data)
        check_range(samples)
        return samples.reshape(-1, channels)


@cache
def _g711_table(subtype: str) -> np.ndarray:
    """The sample of every byte, as libsndfile has it."""
    every = io.BytesIO(bytes(range(256)))
    table, _ = soundfile.read(every, dtype="float32", format="RAW", subtype=subtype, samplerate=8000, channels=1)
    table.setflags(write=False)
    return table


ENCODINGS = {
    encoding.name: encoding
    for encoding in (
        Encoding("pcm16", 2, SAMPLE_RATE, lambda data: as_float(data.view("<i2"))),
        Encoding("float32", 4, SAMPLE_RATE, lambda data: data.view("<f4").astype(np.float32)),
        # G.711 is defined at 8 kHz.
        Encoding("mulaw", 1, 8000, lambda data: _g711_table("ULAW")[data]),
        Encoding("alaw", 1, 8000, lambda data: _g711_table("ALAW")[data]),
    )
}


def find_encoding(name: str) -> Encoding:
    """The encoding of that name. Raises AudioError."""
    if name not in ENCODINGS:
        raise AudioError(f"encoding is {name[:40]!r}; choose one of {', '.join(ENCODINGS)}")
    return ENCODINGS[name]
