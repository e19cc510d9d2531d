"""Features of all streams, with each stream's tail of samples carried over."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from oasr_backend.features.spec import FeatureSpec
from oasr_backend.utils.ranges import NO_RANGES, Ranges
from oasr_backend.utils.staging import host_zeros, to_device


class StreamingFeatures:
    """A buffer of feature frames a slot: appended from samples, read by windows, consumed by strides.

    Chunked frames equal those of the whole signal: samples that start no whole frame yet stay behind.
    """

    def __init__(
        self,
        extract: Callable[[Tensor], Tensor],
        spec: FeatureSpec,
        slots: int,
        capacity: int,
        device: torch.device,
        max_memory: int = 0,
        ranges: Ranges = NO_RANGES,
    ):
        """`extract` turns samples [B, n] on the host into features [B, T, bins] on the device.

        `capacity` frames a slot must hold what one step may append beside what a stream may have left; up to
        `max_memory` consumed ones come beside them.
        """
        self._extract = extract
        self._ranges = ranges
        self._spec = spec
        self._device = device
        self._max_memory = max_memory
        self._frames = torch.zeros(slots, capacity + max_memory, spec.dim, device=device)
        # Frames from the cursor to the fill wait; those before the cursor are remembered.
        self._fill = np.zeros(slots, dtype=np.int64)
        self._cursor = np.zeros(slots, dtype=np.int64)
        self._memory = np.zeros(slots, dtype=np.int64)
        self._tails: list[np.ndarray] = [_EMPTY] * slots

    def reset(self, slot: int) -> None:
        self._fill[slot] = self._cursor[slot] = self._memory[slot] = 0
        self._tails[slot] = _EMPTY

    def available(self, slot: int) -> int:
        """Feature frames that wait in a slot."""
        return int(self._fill[slot] - self._cursor[slot])

    def append(self, slots: Sequence[int], waves: Sequence[np.ndarray]) -> None:
        """Adds samples [n] float32 in [-1, 1] to each slot; one extraction for all."""
        spec = self._spec
        signals, counts = [], []
        for slot, wave in zip(slots, waves, strict=True):
            signal = np.concatenate((self._tails[slot], wave)) if len(self._tails[slot]) else wave
            frames = spec.num_frames(len(signal))
            self._tails[slot] = signal[frames * spec.shift_samples :].copy()
            signals.append(signal)
            counts.append(frames)
        if not any(counts):
            return
        with self._ranges("pad+pin"):
            padded = host_zeros(len(signals), max(map(len, signals)), device=self._device)
            rows_of_samples = padded.numpy()
            for row, signal in enumerate(signals):
                rows_of_samples[row, : len(signal)] = signal
        features = self._extract(padded)
        with self._ranges("distribute"):
            self._distribute(features, slots, counts)

    def _distribute(self, features: Tensor, slots: Sequence[int], counts: Sequence[int]) -> None:
        """Appends the first `counts` frames of each row of `features` [B, T, bins] to its slot."""
        count = np.asarray(counts)
        rows = np.asarray(slots)
        index = np.arange(features.shape[1])
        valid = index < count[:, None]
        capacity = self._frames.shape[1]
        target = (rows * capacity + self._fill[rows])[:, None] + index
        source = np.flatnonzero(valid)
        self._frames.flatten(0, 1).index_copy_(
            0, self._index(target[valid]), features.flatten(0, 1).index_select(0, self._index(source))
        )
        self._fill[rows] += count

    def window(self, slots: Sequence[int], frames: int) -> Tensor:
        """The next `frames` frames of each slot: [B, frames, bins]; frames not there yet are stale, never NaN."""
        return self._read(np.asarray(slots), self._cursor, frames)

    def consume(self, slots: Sequence[int], frames: int | Sequence[int]) -> None:
        """Moves each slot on by up to `frames` frames; of those behind it as many stay as it is to remember."""
        rows = np.asarray(slots)
        self._cursor[rows] = np.minimum(self._cursor[rows] + np.asarray(frames), self._fill[rows])
        gone = np.zeros_like(self._cursor)
        gone[rows] = np.maximum(self._cursor[rows] - self._memory[rows], 0)
        left = self._fill[rows] - gone[rows]
        keep = int(left.max(initial=0))
        if keep and gone[rows].any():
            rest = self._read(rows, gone, keep)
            self._frames[:, :keep].index_copy_(0, self._index(rows), rest)
        self._fill[rows] = left
        self._cursor[rows] -= gone[rows]

    def remember(self, slot: int, frames: int) -> None:
        """From now on up to `frames` consumed frames of a slot stay readable, for `rewind`."""
        self._memory[slot] = min(frames, self._max_memory)

    def rewind(self, slot: int, frames: int) -> None:
        """Makes the last `frames` consumed frames of a slot wait again. Raises ValueError when they are gone."""
        if frames > self._cursor[slot]:
            raise ValueError(f"{frames} frames are to come again and {self._cursor[slot]} are remembered")
        self._cursor[slot] -= frames

    def _read(self, rows: np.ndarray, first: np.ndarray, frames: int) -> Tensor:
        """[B, frames, bins] from frame `first` [slots] of each slot on."""
        if not first[rows].any():
            return self._frames[:, :frames].index_select(0, self._index(rows))
        capacity = self._frames.shape[1]
        # What lies past the buffer is past the slot's fill, too.
        place = np.minimum(first[rows][:, None] + np.arange(frames), capacity - 1) + (rows * capacity)[:, None]
        return self._frames.flatten(0, 1).index_select(0, self._index(place.reshape(-1))).unflatten(0, place.shape)

    def _index(self, array: np.ndarray) -> Tensor:
        return to_device(array.astype(np.int64, copy=False), self._device)


_EMPTY = np.zeros(0, dtype=np.float32)
