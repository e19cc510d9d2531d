"""A file's samples as they are decoded: checked, mixed down, resampled."""

import numpy as np

from oasr_backend.audio.channels import one_channel
from oasr_backend.audio.limits import Allowance
from oasr_backend.audio.rates import check_rate
from oasr_backend.audio.resampling import Resampler
from oasr_backend.errors import AudioError


class Recording:
    """Takes blocks of any rate and channel count, and holds one channel at the models' rate."""

    def __init__(self, allowance: Allowance, channel: int | None):
        self._allowance = allowance
        self._channel = channel
        self._pieces: list[np.ndarray] = []
        self._resampler: Resampler | None = None
        self.sample_rate = 0
        """Of the file, in Hz; 0 while there is no block."""
        self.channels = 0
        self.seconds = 0.0

    def add(self, block: np.ndarray, rate: int) -> None:
        """[n, channels] float32 at `rate`, which may differ from the block before. Raises AudioError."""
        if self._resampler is None or rate != self.sample_rate:
            self._flush()
            self.set_format(rate, block.shape[1])
            self._resampler = Resampler(rate)
        self.channels = max(self.channels, block.shape[1])
        self.seconds += len(block) / rate
        self.check()
        samples = one_channel(block, self._channel)
        if not np.isfinite(samples).all():
            raise AudioError("AUDIO holds NaN or infinity; write the file again from finite samples")
        self._pieces.append(self._resampler.feed(samples))

    def set_format(self, rate: int, channels: int) -> None:
        """What the file says of itself, for one without blocks. Raises AudioError."""
        check_rate(rate, "AUDIO is at")
        self.sample_rate, self.channels = rate, channels

    @property
    def deadline(self) -> float:
        """Of this thread's processor time, in seconds."""
        return self._allowance.deadline

    def expect(self, seconds: float) -> None:
        """What the file's header says of its length. Raises AudioError when that is too much, before the work."""
        self._allowance.check(seconds)

    def check(self) -> None:
        """Raises AudioError when the file has used up what it may."""
        self._allowance.check(self.seconds)

    def samples(self) -> np.ndarray:
        """[n] float32, all of it; no block may follow."""
        self._flush()
        return np.concatenate(self._pieces) if self._pieces else np.zeros(0, dtype=np.float32)

    def _flush(self) -> None:
        if self._resampler is not None:
            self._pieces.append(self._resampler.feed(np.zeros(0, dtype=np.float32), is_last=True))
