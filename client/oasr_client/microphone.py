"""The microphone as chunks of audio."""

import queue
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client.audio import SAMPLE_RATE
from oasr_client.errors import AudioError, MissingExtra

_WAIT_S = 0.2


class Microphone:
    """The default input device (or `device`), mono at 16 kHz; a context manager that records while it is open.

    Args:
        chunk_ms: length of a chunk in milliseconds.
        device: name or number of an input device.
    Raises:
        MissingExtra: sounddevice, or the PortAudio library that it needs, is not installed.
        AudioError: there is no such device, or it cannot be opened.
    """

    def __init__(self, chunk_ms: float, device: str | int | None = None) -> None:
        try:
            import sounddevice
        except (ImportError, OSError) as error:
            raise MissingExtra(
                'a microphone needs sounddevice and the PortAudio library: pip install "oasr-triton[mic]", and on '
                "Debian or Ubuntu apt-get install libportaudio2"
            ) from error
        self._chunks: queue.Queue[npt.NDArray[Any]] = queue.Queue()
        self._resampler: Any = None
        self.overflows = 0
        """How often the device had to drop audio because this program was too slow."""
        try:
            self._stream = self._opened(sounddevice, chunk_ms, device, SAMPLE_RATE)
        except sounddevice.PortAudioError:
            self._stream = self._at_its_own_rate(sounddevice, chunk_ms, device)

    def chunks(self) -> Iterator[npt.NDArray[Any]]:
        """float32 chunks [N] in [-1, 1], for ever."""
        while True:
            # With a limit, so that an interrupt is seen.
            try:
                yield self._chunks.get(timeout=_WAIT_S)
            except queue.Empty:
                continue

    def __enter__(self) -> "Microphone":
        self._stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.stop()
        self._stream.close()

    def _at_its_own_rate(self, sounddevice: Any, chunk_ms: float, device: str | int | None) -> Any:
        import soxr

        try:
            rate = round(sounddevice.query_devices(device, "input")["default_samplerate"])
            self._resampler = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
            return self._opened(sounddevice, chunk_ms, device, rate)
        except (sounddevice.PortAudioError, ValueError) as error:
            raise AudioError(f"the microphone cannot be opened ({error}): name another one with --device") from error

    def _opened(self, sounddevice: Any, chunk_ms: float, device: str | int | None, rate: int) -> Any:
        return sounddevice.InputStream(
            samplerate=rate,
            blocksize=max(1, round(rate * chunk_ms / 1000)),
            device=device,
            channels=1,
            dtype="float32",
            callback=self._heard,
        )

    def _heard(self, data: npt.NDArray[Any], frames: int, time: Any, status: Any) -> None:
        if status.input_overflow:
            self.overflows += 1
        samples = data[:, 0].copy()
        self._chunks.put(samples if self._resampler is None else np.asarray(self._resampler.resample_chunk(samples)))
