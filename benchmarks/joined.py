"""Utterances joined to one recording, and which of its words belong to which."""

import random
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from benchmarks.accuracy import Utterance
from oasr_backend.engine import RequestOutput
from oasr_client import audio


@dataclass(frozen=True)
class Placed:
    """An utterance and where it lies in the recording, in seconds."""

    text: str
    start: float
    end: float


def recording(utterances: list[Utterance], minutes: float, pause: float = 0.0) -> tuple[np.ndarray, list[Placed]]:
    """[samples] float32 of at least `minutes`, and the utterances in it, `pause` seconds between them.

    A pause is noise as loud as the quietest tenth of a second of the utterance before it: no microphone gives zeros.
    """
    generator = np.random.default_rng(0)
    order = list(utterances)
    random.Random(0).shuffle(order)
    waves = {utterance.path: audio.read(utterance.path) for utterance in order}
    parts: list[np.ndarray] = []
    placed: list[Placed] = []
    samples = 0
    for utterance in cycle(order):
        if samples >= minutes * 60 * audio.SAMPLE_RATE:
            break
        wave = waves[utterance.path]
        start = samples / audio.SAMPLE_RATE
        samples += len(wave)
        placed.append(Placed(utterance.text, start, samples / audio.SAMPLE_RATE))
        noise = generator.standard_normal(round(pause * audio.SAMPLE_RATE)) * floor(wave)
        samples += len(noise)
        parts += [wave, noise.astype(np.float32)]
    return np.concatenate(parts), placed


def floor(wave: np.ndarray) -> float:
    """Root mean square of the quietest tenth of a second."""
    size = audio.SAMPLE_RATE // 10
    blocks = wave[: len(wave) // size * size].reshape(-1, size)
    return float(np.sqrt(np.square(blocks).mean(1)).min()) if len(blocks) else 0.0


def by_time(output: RequestOutput, placed: list[Placed]) -> dict[Placed, str]:
    """A long stream's words given to the utterance in which their middle lies."""
    texts: dict[Placed, list[str]] = {one: [] for one in placed}
    position = 0
    for word in output.words or ():
        middle = (word.start + word.end) / 2
        while position + 1 < len(placed) and middle >= placed[position].end:
            position += 1
        texts[placed[position]].append(word.word)
    return {one: " ".join(words) for one, words in texts.items()}
