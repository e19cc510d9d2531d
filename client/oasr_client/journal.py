"""The audio that a stream has sent, as far back as a replay may have to begin."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

# Loudness is judged over so much audio, and places lie so far apart: one encoder frame of the commonest models.
_WINDOW_S = 0.12
_GRID_S = 0.04


class Journal:
    """Samples of one stream, int16 or float32; places are counted in samples from the start of the stream.

    Args:
        limit: the most samples that are kept; of more, the oldest are dropped.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[npt.NDArray[Any]] = deque()
        self.first = 0
        """The oldest place that is kept."""
        self.end = 0
        """Behind the last sample."""

    def append(self, samples: npt.NDArray[Any]) -> None:
        """Adds samples [N]; they are copied, for the caller's buffer may be used again."""
        if samples.size:
            self._pieces.append(samples.copy())
            self.end += samples.size
            self.forget_before(self.end - self._limit)

    def forget_before(self, place: int) -> None:
        """Drops what lies before `place`."""
        place = min(place, self.end)
        while self._pieces and self.first + self._pieces[0].size <= place:
            self.first += self._pieces.popleft().size
        if place > self.first:
            # A copy, so that the part that is dropped gives its memory back.
            self._pieces[0] = self._pieces[0][place - self.first :].copy()
            self.first = place

    def read(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Samples [begin, end), which must be kept."""
        if not self.first <= begin <= end <= self.end:
            raise IndexError(f"samples {begin} to {end} are not kept: {self.first} to {self.end} are")
        parts = []
        at = self.first
        for piece in self._pieces:
            if at < end and at + piece.size > begin:
                parts.append(piece[max(0, begin - at) : end - at])
            at += piece.size
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int16)


def quietest(read: Callable[[int, int], npt.NDArray[Any]], low: int, high: int, end: int, rate: int) -> int:
    """The place in [low, high] around which there is least sound.

    Args:
        read: samples [begin, end) of the stream.
        low: the first place that comes into question, in samples; nothing is read before it.
        high: the last one.
        end: behind the last sample that can be read.
        rate: samples per second.
    """
    grid, half = round(_GRID_S * rate), round(_WINDOW_S * rate / 2)
    first = -(-low // grid) * grid
    places = np.arange(first, high + 1, grid)
    if places.size < 2:
        return low
    samples = read(low, min(end, high + half)).astype(np.float64)
    energy = np.concatenate(([0.0], np.cumsum(samples**2)))
    begins = np.clip(places - half - low, 0, samples.size)
    ends = np.clip(places + half - low, 0, samples.size)
    means = (energy[ends] - energy[begins]) / np.maximum(1, ends - begins)
    # Among places that are equally quiet, the one farthest from the words on either side.
    quiet = places[means <= means.min() * 1.5 + 1e-12]
    return int(quiet[np.argmin(np.abs(quiet - (low + high) / 2))])
