"""Where clips lie in one gapless row, as pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.geometry import FrontEndGeometry


@dataclass(frozen=True)
class PackedRow:
    """Clips one after another, each on a whole encoder frame, so that front end and features run over one row.

    Frames that straddle two clips are computed and left out: `first_frames` and `frames` say which are kept.
    """

    starts: tuple[int, ...]
    """First sample of each clip in the row."""
    used: tuple[int, ...]
    """Samples of each clip that its frames depend on."""
    samples: int
    """Length of the row."""
    first_frames: tuple[int, ...]
    """First encoder frame of each clip among those of the row."""
    frames: tuple[int, ...]
    """Encoder frames of each clip."""

    @property
    def kept(self) -> list[int]:
        """Encoder frames of the row that belong to a clip, in order."""
        return [
            first + frame for first, count in zip(self.first_frames, self.frames, strict=True) for frame in range(count)
        ]


def pack(samples: Sequence[int], spec: FeatureSpec, geometry: FrontEndGeometry) -> PackedRow:
    """The row of clips of so many samples; a clip too short for a frame takes no place."""
    unit = geometry.rate * spec.shift_samples
    starts: list[int] = []
    used: list[int] = []
    frames: list[int] = []
    end = 0
    for count in samples:
        encoded = geometry.frames_out(spec.num_frames(count))
        needed = (geometry.window(encoded) - 1) * spec.shift_samples + spec.frame_samples if encoded else 0
        start = -(-end // unit) * unit
        starts.append(start)
        used.append(needed)
        frames.append(encoded)
        end = start + needed if needed else end
    return PackedRow(tuple(starts), tuple(used), end, tuple(start // unit for start in starts), tuple(frames))
