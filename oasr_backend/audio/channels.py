"""From several channels to one."""

import numpy as np

from oasr_backend.errors import AudioError

# Above every recorder's; libsndfile would take 1024.
MAX_CHANNELS = 32


def one_channel(block: np.ndarray, channel: int | None) -> np.ndarray:
    """[n, channels] to [n]: the mean of all, or the one of that number, counted from 0. Raises AudioError."""
    channels = block.shape[1]
    if channels > MAX_CHANNELS:
        raise AudioError(f"AUDIO has {channels} channels; send at most {MAX_CHANNELS}")
    if channel is None:
        return block[:, 0] if channels == 1 else block.mean(axis=1, dtype=np.float32)
    if not 0 <= channel < channels:
        has = "1 channel, number 0" if channels == 1 else f"{channels} channels, numbers 0 to {channels - 1}"
        raise AudioError(
            f"channel is {channel} and AUDIO has {has}; name one of these, or leave channel out to mix them"
        )
    return block[:, channel]
