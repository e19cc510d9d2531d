"""Telephone audio that comes at 16 kHz: speech is there, and nothing above 4 kHz."""

import numpy as np

from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.audio.samples import as_float

NARROW_BAND = (
    "the audio has no energy above 4 kHz, like a telephone call of 8 kHz that was converted to 16 kHz: expect more "
    "errors, and send the original at its own rate where there is one"
)

# One frame of 32 ms is looked at in every 160 ms.
_WINDOW = SAMPLE_RATE * 32 // 1000
_HOP = SAMPLE_RATE * 160 // 1000
# Resamplers' filters end a little above 4 kHz.
_FIRST_HIGH_BIN = 4300 * _WINDOW // SAMPLE_RATE
# Speech is louder than this, full scale being 0 dB.
_LOUD = 10 ** (-50 / 10)
# There is energy in the upper half where it is above the noise of 16 bits and above what a filter leaves.
_FLOOR = 10 ** (-92 / 10)
_RATIO = 10 ** (-60 / 10)
# A second of speech tells; after five, more would tell nothing else.
_ENOUGH = 1000 // 160 + 1
_SETTLED = 5 * _ENOUGH
# So many loud frames with energy above leave no doubt: a click has it in one.
_WIDE_SHARE = 0.1

_TAPER = np.hanning(_WINDOW + 1)[:-1].astype(np.float32)
# Sums of one side of the spectrum to mean squares.
_SCALE = 2 / (_WINDOW * float((_TAPER**2).sum()))


class BandCheck:
    """Listens to mono audio at SAMPLE_RATE in pieces of any length; what it finds does not depend on them."""

    def __init__(self) -> None:
        self._tail = np.zeros(0, dtype=np.float32)
        self._loud = 0
        self._wide = 0

    @property
    def is_narrow(self) -> bool:
        """Whether there was enough speech, and nothing above 4 kHz."""
        return self._loud >= _ENOUGH and self._wide <= _WIDE_SHARE * self._loud

    @property
    def is_settled(self) -> bool:
        """Whether more audio would change nothing."""
        return self._loud >= _SETTLED or self._wide > _WIDE_SHARE * _SETTLED

    def feed(self, samples: np.ndarray) -> None:
        """[n] float32 in [-1, 1] or int16."""
        if self.is_settled:
            return
        signal = np.concatenate((self._tail, as_float(samples)))
        hops = len(signal) // _HOP
        self._tail = signal[hops * _HOP :].copy()
        self._look(signal[: hops * _HOP].reshape(hops, _HOP)[:, :_WINDOW])

    @np.errstate(over="ignore", invalid="ignore")
    def _look(self, frames: np.ndarray) -> None:
        """[m, window]: counts those that are loud, up to where the matter is settled.

        Clips come here before they are checked, so values may be any.
        """
        loud = frames[np.einsum("ij,ij->i", frames, frames) > _LOUD * _WINDOW][: _SETTLED - self._loud]
        if not len(loud):
            return
        spectrum = np.fft.rfft(loud * _TAPER)
        power = (spectrum.real**2 + spectrum.imag**2) * _SCALE
        high = power[:, _FIRST_HIGH_BIN:].sum(axis=1)
        self._loud += len(loud)
        self._wide += int(np.count_nonzero((high > _FLOOR) & (high > _RATIO * power.sum(axis=1))))


def is_narrow_band(samples: np.ndarray) -> bool:
    """Whether a clip [n] at SAMPLE_RATE is speech with nothing above 4 kHz."""
    check = BandCheck()
    for begin in range(0, len(samples), SAMPLE_RATE):
        check.feed(samples[begin : begin + SAMPLE_RATE])
        if check.is_settled:
            break
    return check.is_narrow
