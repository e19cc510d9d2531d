"""What counts as samples: finite, and about [-1, 1]."""

import numpy as np

from oasr_backend.errors import AudioError

# Far above any recording in [-1, 1], far below int16 values passed as float by mistake.
MAX_SAMPLE = 32.0


def check_range(array: np.ndarray) -> None:
    """Raises AudioError unless every sample is a number that could be audio in [-1, 1]."""
    if not array.size:
        return
    peak = max(float(array.max()), -float(array.min()))
    if np.isnan(peak) or np.isinf(peak):
        raise AudioError("audio holds NaN or infinity; send finite samples in [-1, 1]")
    if peak > MAX_SAMPLE:
        raise AudioError(
            f"audio holds a sample of {peak:.6g}; samples must lie in [-1, 1]: send int16 audio as int16, "
            "or divide it by 32768"
        )


def as_float(samples: np.ndarray) -> np.ndarray:
    """Samples [n] int16 or float32 as float32 in [-1, 1]."""
    if samples.dtype == np.int16:
        return samples.astype(np.float32) * np.float32(1 / 32768)
    return samples.astype(np.float32, copy=False)
