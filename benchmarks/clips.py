"""Clips of mixed lengths."""

from collections.abc import Sequence

import numpy as np

from benchmarks.streams import noise
from oasr_client import audio


def mixed_clips(count: int, shortest_s: float = 2.0, longest_s: float = 15.0, seed: int = 0) -> list[np.ndarray]:
    """Noise of lengths spread evenly between the two, in a random order: [samples] float32 each."""
    seconds = np.linspace(shortest_s, longest_s, count)
    np.random.default_rng(seed).shuffle(seconds)
    wave = noise(longest_s)
    return [wave[: round(one * audio.SAMPLE_RATE)] for one in seconds]


def total_seconds(clips: Sequence[np.ndarray]) -> float:
    return sum(map(len, clips)) / audio.SAMPLE_RATE


def by_length(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Indices in batches of at most `size`, each of clips as long as possible as each other."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    return [order[start : start + size] for start in range(0, len(order), size)]


def padding_factor(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Frames with padding per frame without."""
    padded = sum(max(lengths[index] for index in batch) * len(batch) for batch in batches)
    return padded / sum(lengths[index] for batch in batches for index in batch)
