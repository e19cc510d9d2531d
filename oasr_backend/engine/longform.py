"""How a long recording is cut into windows and how their hypotheses are joined, as pure rules."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oasr_backend.decode.base import Hypothesis
from oasr_backend.decode.words import Word, needs_space, words
from oasr_backend.features.onset import silence_limit, stretches

# Power is taken over 25 ms every 10 ms.
_FRAME_S, _SHIFT_S = 0.025, 0.01
# Digital silence in decibels of the samples' range.
_NO_POWER = 1e-20
# So long a silence is no pause within a word.
_MIN_SILENCE_S = 0.3
# Levels are compared over so long a stretch, because speakers differ.
_REGION_S = 10.0
# Of a long silence so much is left before speech: models hear little of it in training.
_LEAD_S = 0.2
# No window is shorter, except a recording's last.
_FIRST_CUT_S = 1.0
# What two windows hear of one word may lie so far apart.
_SAME_WORD_S = 0.25


@dataclass(frozen=True)
class CutRule:
    """Windows of at most `window` samples that share `overlap` samples where no silence is found to cut in.

    Windows start on whole `unit`s, the samples of an encoder frame.
    """

    sample_rate: int
    window: int
    overlap: int
    unit: int

    @property
    def first_cut(self) -> int:
        """Samples after which a window may end."""
        return round(_FIRST_CUT_S * self.sample_rate)


@dataclass(frozen=True)
class Window:
    """Samples [start, end) of a recording, the first `shared` of which the window before holds too."""

    start: int
    end: int
    shared: int


def cut(samples: np.ndarray, rule: CutRule) -> Iterator[Window]:
    """Windows of a recording, [n] float32, in order; no sample is left out.

    A window ends in the first silence after its first second; where there is none up to its full length it shares its
    end with the next.
    """
    start = shared = 0
    while start + rule.first_cut < len(samples):
        pause = _pause(samples[start : start + rule.window], rule)
        if pause is not None:
            end = following = (start + pause) // rule.unit * rule.unit
        elif len(samples) - start <= rule.window:
            break
        else:
            end = start + rule.window
            following = (end - rule.overlap) // rule.unit * rule.unit
        yield Window(start, end, shared)
        start, shared = following, end - following
    yield Window(start, len(samples), shared)


def _pause(samples: np.ndarray, rule: CutRule) -> int | None:
    """Where to cut in the first silence that lies between speech, in samples from the start; None without one."""
    region = round(_REGION_S * rule.sample_rate)
    # Regions share what is needed not to miss a silence on their border.
    step = region - round(2 * _MIN_SILENCE_S * rule.sample_rate)
    for first in range(rule.first_cut, len(samples), step):
        place = quiet_place(samples[first : first + region], rule.sample_rate)
        if place is not None and first + place + rule.unit < len(samples):
            return first + place
    return None


def quiet_place(region: np.ndarray, sample_rate: int) -> int | None:
    """Where to cut in the first silence of `region`: its middle, or a little before its end; None without one.

    Silence is far below the loud frames and near the quiet ones, and long.
    """
    frame, shift = round(_FRAME_S * sample_rate), round(_SHIFT_S * sample_rate)
    power = mean_square(region, frame, shift)
    if not power.size:
        return None
    levels = 10 * np.log10(np.maximum(power, _NO_POWER))
    min_frames = math.ceil(_MIN_SILENCE_S * sample_rate / shift)
    for first, end in stretches(levels, max(silence_limit(levels), 10 * math.log10(_NO_POWER)), min_frames):
        middle = (first + end - 1) * shift // 2
        return max(middle, end * shift - round(_LEAD_S * sample_rate)) + frame // 2
    return None


def mean_square(samples: np.ndarray, frame: int, shift: int) -> np.ndarray:
    """Mean square of every whole frame: [1 + (n - frame) // shift] float64."""
    if len(samples) < frame:
        return np.zeros(0)
    total = np.concatenate(([0.0], np.cumsum(np.square(samples, dtype=np.float64))))
    starts = np.arange(0, len(samples) - frame + 1, shift)
    return (total[starts + frame] - total[starts]) / frame


@dataclass(frozen=True)
class Heard:
    """What one window's decoding gave; `pieces` are its tokens' texts, frames count from the window's start."""

    hypothesis: Hypothesis
    pieces: tuple[str, ...]
    first_frame: int
    """Frame of the recording at which the window starts."""
    shared_frames: int
    """Frames in front that the window before holds too."""


def join(parts: Sequence[Heard], seconds_per_frame: float) -> tuple[Hypothesis, list[str]]:
    """One hypothesis of all windows and its tokens' texts; frames count from the start of the recording.

    Texts of different windows are parted by a space, except beside a script that has none. Where two windows share
    audio a word belongs to the one in whose half its middle lies; of a word that both or neither would keep by that,
    both hearing it at the same time, one is kept.
    """
    tokens: list[int] = []
    pieces: list[str] = []
    frames: list[int] = []
    confidences: list[float] = []
    score = 0.0
    tolerance = _SAME_WORD_S / seconds_per_frame
    spoken = [_placed(part) for part in parts]
    keep = [(0, len(found)) for found in spoken]
    for index in range(1, len(parts)):
        shared = parts[index].shared_frames
        if shared:
            seam = parts[index].first_frame + shared / 2
            last, first = _seam(spoken[index - 1], spoken[index], seam, tolerance)
            keep[index - 1] = (keep[index - 1][0], last)
            keep[index] = (first, keep[index][1])
    for part, found, (first, last) in zip(parts, spoken, keep, strict=True):
        hypothesis = part.hypothesis
        score += hypothesis.score
        kept = range(first, last)
        if not kept and found:
            continue
        start = found[first - 1].last_token + 1 if first else 0
        end = found[last - 1].last_token + 1 if last < len(found) else len(hypothesis.tokens)
        new = list(part.pieces[start:end])
        if new and pieces and needs_space(pieces[-1], new[0]):
            new[0] = f" {new[0]}"
        pieces += new
        tokens += hypothesis.tokens[start:end]
        for frame in hypothesis.frames[start:end]:
            # Two windows may place the words at their seam differently; time never goes back.
            frames.append(max(part.first_frame + frame, frames[-1] + 1 if frames else 0))
        confidences += hypothesis.confidences[start:end]
    return Hypothesis(tuple(tokens), tuple(frames), tuple(confidences), score), pieces


def _placed(part: Heard) -> list[Word]:
    """Words of a window at their frames of the recording."""
    hypothesis = part.hypothesis
    found = words(part.pieces, hypothesis.frames, hypothesis.confidences)
    return [replace(word, start=word.start + part.first_frame, end=word.end + part.first_frame) for word in found]


def _seam(left: Sequence[Word], right: Sequence[Word], seam: float, tolerance: float) -> tuple[int, int]:
    """How many words of `left` stay, and the first of `right` that does, when the seam lies at frame `seam`."""
    last = next((index for index, word in enumerate(left) if _middle(word) > seam), len(left))
    first = next((index for index, word in enumerate(right) if _middle(word) > seam), len(right))
    if last and first < len(right) and _same(left[last - 1], right[first], tolerance):
        return last, first + 1
    if last < len(left) and first and _same(left[last], right[first - 1], tolerance):
        return last + 1, first
    return last, first


def _middle(word: Word) -> float:
    return (word.start + word.end) / 2


def _same(one: Word, other: Word, tolerance: float) -> bool:
    return one.text.casefold() == other.text.casefold() and abs(_middle(one) - _middle(other)) <= tolerance
