import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oasr_client.errors import AudioError, MissingExtra
from oasr_client.microphone import Microphone


class SoundDevice(ModuleType):
    """As much of the library as is used; `rates` are those that the device takes."""

    class PortAudioError(Exception):
        pass

    def __init__(self, rates: set[int]) -> None:
        super().__init__("sounddevice")
        self.rates = rates
        self.events: list[str] = []
        self.given: dict[str, Any] = {}

    def query_devices(self, device: Any, kind: str) -> dict[str, Any]:
        if not self.rates:
            raise ValueError("no input device")
        return {"default_samplerate": float(max(self.rates))}

    def InputStream(self, **given: Any) -> Any:
        if given["samplerate"] not in self.rates:
            raise self.PortAudioError("Invalid sample rate")
        self.given = given
        return SimpleNamespace(
            **{name: lambda name=name: self.events.append(name) for name in ("start", "stop", "close")}
        )

    def hear(self, samples: np.ndarray, overflow: bool = False) -> None:
        self.given["callback"](samples[:, None], len(samples), None, SimpleNamespace(input_overflow=overflow))


def installed(monkeypatch: pytest.MonkeyPatch, *rates: int) -> SoundDevice:
    library = SoundDevice(set(rates))
    monkeypatch.setitem(sys.modules, "sounddevice", library)
    return library


def test_chunks_come_as_they_were_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    library = installed(monkeypatch, 16_000, 48_000)
    with Microphone(100.0, device="usb") as microphone:
        assert (library.given["samplerate"], library.given["blocksize"]) == (16_000, 1_600)
        assert (library.given["channels"], library.given["device"]) == (1, "usb")
        buffer = np.full(1_600, 0.5, dtype=np.float32)
        library.hear(buffer)
        # The device uses its buffer again.
        buffer[:] = 0
        library.hear(buffer, overflow=True)
        chunks = microphone.chunks()
        assert next(chunks).tolist() == [0.5] * 1_600
        assert next(chunks).tolist() == [0.0] * 1_600
        assert microphone.overflows == 1
    assert library.events == ["start", "stop", "close"]


def test_a_device_of_another_rate_is_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    library = installed(monkeypatch, 48_000)
    with Microphone(100.0) as microphone:
        assert library.given["samplerate"] == 48_000
        wave = np.sin(2 * np.pi * 440 * np.arange(48_000) / 48_000).astype(np.float32)
        for begin in range(0, 48_000, 4_800):
            library.hear(wave[begin : begin + 4_800])
        chunks = microphone.chunks()
        heard = np.concatenate([next(chunks) for _ in range(10)])
    assert 15_000 < heard.size <= 16_000
    spectrum = np.abs(np.fft.rfft(heard * np.hanning(heard.size)))
    assert np.argmax(spectrum) * 16_000 / heard.size == pytest.approx(440, abs=2)


def test_no_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(AudioError, match=r"the microphone cannot be opened .* --device"):
        Microphone(100.0)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(MissingExtra, match=r'pip install "oasr-triton\[mic\]"'):
        Microphone(100.0)
