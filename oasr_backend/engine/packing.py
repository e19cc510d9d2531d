"""Where clips lie in one gapless row, as pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    first_feature: int = 0
    """Its first feature frame in the row that it is a part of."""
    features: int | None = None
    """How many it has of those; None: all of them."""

    def part(self, clips: range, geometry: FrontEndGeometry) -> "PackedRow":
        """The row of neighbouring clips of this one; its samples are counted as before."""
        if len(clips) == len(self.frames):
            return self
        own = slice(clips.start, clips.stop)
        first = self.first_frames[clips.start]
        end = self.first_frames[clips[-1]] + self.frames[clips[-1]]
        return replace(
            self,
            starts=self.starts[own],
            used=self.used[own],
            first_frames=tuple(frame - first for frame in self.first_frames[own]),
            frames=self.frames[own],
            first_feature=first * geometry.rate,
            features=geometry.window(end - first),
        )

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
