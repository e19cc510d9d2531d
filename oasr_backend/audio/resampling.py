"""To the models' rate, piece by piece, without a seam."""

import numpy as np
import soxr

from oasr_backend.audio.rates import SAMPLE_RATE


class Resampler:
    """Samples at `rate` to SAMPLE_RATE with carried state: pieces of any length give what the whole gives.

    It holds back up to 0.12 s until the last piece.
    """

    def __init__(self, rate: int):
        self._stream = None if rate == SAMPLE_RATE else soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")

    def feed(self, samples: np.ndarray, is_last: bool = False) -> np.ndarray:
        """float32 [n] to float32 [m]; nothing may follow the last piece."""
        if self._stream is None:
            return samples
        return self._stream.resample_chunk(np.ascontiguousarray(samples), last=is_last)
