"""Features of all streams, with each stream's tail of samples carried over."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from oasr_backend.features.base import FeatureExtractor


class StreamingFeatures:
    """A buffer of feature frames a slot: appended from samples, read by windows, consumed by strides.

    Chunked frames equal those of the whole signal: samples that start no whole frame yet stay behind.
    """

    def __init__(self, extractor: FeatureExtractor, slots: int, capacity: int, device: torch.device):
        """`capacity` frames a slot must hold what one step may append beside what a stream may have left."""
        self._extractor = extractor
        self._spec = extractor.spec
        self._device = device
        self._frames = torch.zeros(slots, capacity, extractor.spec.dim, device=device)
        self._fill = np.zeros(slots, dtype=np.int64)
        self._tails: list[np.ndarray] = [_EMPTY] * slots

    def reset(self, slot: int) -> None:
        self._fill[slot] = 0
        self._tails[slot] = _EMPTY

    def available(self, slot: int) -> int:
        """Feature frames that wait in a slot."""
        return int(self._fill[slot])

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
        padded = np.zeros((len(signals), max(map(len, signals))), dtype=np.float32)
        for row, signal in enumerate(signals):
            padded[row, : len(signal)] = signal
        features = self._extractor(torch.from_numpy(padded).to(self._device))
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
        """The first `frames` frames of each slot: [B, frames, bins]; frames not there yet are stale, never NaN."""
        return self._frames[:, :frames].index_select(0, self._index(np.asarray(slots)))

    def consume(self, slots: Sequence[int], frames: int) -> None:
        """Drops up to `frames` frames from the front of each slot."""
        rows = np.asarray(slots)
        left = np.maximum(self._fill[rows] - frames, 0)
        keep = int(left.max(initial=0))
        if keep:
            index = self._index(rows)
            rest = self._frames[:, frames : frames + keep].index_select(0, index)
            self._frames[:, :keep].index_copy_(0, index, rest)
        self._fill[rows] = left

    def _index(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64, copy=False)).to(self._device)


_EMPTY = np.zeros(0, dtype=np.float32)
