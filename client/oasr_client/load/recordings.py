"""Audio for streams of any length, made of a few clips."""

from collections.abc import Sequence

import numpy as np

from oasr_client import audio
from oasr_client.errors import AudioError


def recording(clips: Sequence[audio.Samples], seconds: float, variant: int = 0) -> audio.Samples:
    """The clips one after the other, again and again: [samples] int16 of so many seconds.

    Variants begin with different clips.

    Raises:
        AudioError: there is no audio in the clips.
    """
    if not any(len(clip) for clip in clips):
        raise AudioError("there is no audio in the clips: name others with --clips")
    first = variant % len(clips)
    once = np.concatenate([audio.to_pcm(clip) for clip in (*clips[first:], *clips[:first])])
    samples = round(seconds * audio.SAMPLE_RATE)
    return np.tile(once, -(-samples // len(once)))[:samples]
