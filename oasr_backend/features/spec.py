"""What the front end computes, as plain numbers."""

import math
from dataclasses import dataclass

from oasr_backend.errors import CheckpointError


@dataclass(frozen=True)
class FeatureSpec:
    """Parameters of the acoustic features, taken from the checkpoint.

    `audio_scale` is multiplied into samples in [-1, 1]; WeNet models expect the int16 range.
    """

    kind: str = "fbank"
    sample_rate: int = 16000
    num_mel_bins: int = 80
    num_ceps: int = 13
    cepstral_lifter: float = 22.0
    frame_length_ms: float = 25.0
    frame_shift_ms: float = 10.0
    audio_scale: float = 32768.0
    preemphasis: float = 0.97
    low_freq: float = 20.0
    high_freq: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sample_rate", "num_mel_bins", "num_ceps", "frame_length_ms", "frame_shift_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise CheckpointError(f"feature parameter {name} is {value}; it must be above 0")
        for name, samples in (("frame_length_ms", self.frame_samples), ("frame_shift_ms", self.shift_samples)):
            if not 1 <= samples <= self.sample_rate:
                raise CheckpointError(
                    f"feature parameter {name} is {getattr(self, name)}, which is {samples} samples at "
                    f"{self.sample_rate} Hz; it must be 1 sample to 1 second"
                )
        if self.kind == "mfcc" and self.num_ceps > self.num_mel_bins:
            raise CheckpointError(
                f"feature parameter num_ceps is {self.num_ceps}, above num_mel_bins {self.num_mel_bins}"
            )

    @property
    def dim(self) -> int:
        """Numbers per frame."""
        return self.num_ceps if self.kind == "mfcc" else self.num_mel_bins

    @property
    def frame_samples(self) -> int:
        return int(self.sample_rate * self.frame_length_ms / 1000)

    @property
    def shift_samples(self) -> int:
        return int(self.sample_rate * self.frame_shift_ms / 1000)

    @property
    def fft_size(self) -> int:
        """Next power of two above the frame, as Kaldi pads it."""
        return 1 << (self.frame_samples - 1).bit_length()

    def num_frames(self, samples: int) -> int:
        """Frames of `samples` samples: only those that fit whole (Kaldi snip_edges)."""
        if samples < self.frame_samples:
            return 0
        return (samples - self.frame_samples) // self.shift_samples + 1
