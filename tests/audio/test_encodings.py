"""Raw encodings: what the bytes stand for, and what is refused of them."""

import numpy as np
import pytest

from oasr_backend.audio.encodings import ENCODINGS, find_encoding
from oasr_backend.errors import AudioError


def decoded(name: str, data: bytes, channels: int = 1) -> np.ndarray:
    return find_encoding(name).samples(np.frombuffer(data, dtype=np.uint8), channels)


def test_g711_has_the_values_of_its_tables() -> None:
    """Of ITU-T G.711, in 16 bits: both ends of each law, and its smallest steps."""
    mulaw = decoded("mulaw", bytes([0x00, 0x80, 0xFF, 0x7F, 0xFE, 0x7E]))[:, 0] * 32768
    assert mulaw.tolist() == [-32124, 32124, 0, 0, 8, -8]
    alaw = decoded("alaw", bytes([0x2A, 0xAA, 0xD5, 0x55, 0xD4, 0x54]))[:, 0] * 32768
    assert alaw.tolist() == [-32256, 32256, 8, -8, 24, -24]


def test_linear_samples_are_little_endian() -> None:
    assert decoded("pcm16", bytes([0x00, 0x40, 0x00, 0x80]))[:, 0].tolist() == [0.5, -1.0]
    assert decoded("float32", np.array([0.25, -2.0], dtype="<f4").tobytes())[:, 0].tolist() == [0.25, -2.0]


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_channels_are_interleaved(name: str) -> None:
    width = ENCODINGS[name].width
    data = bytes(width) + bytes([0x40] * width) + bytes(width) + bytes([0x40] * width)
    frames = decoded(name, data, channels=2)
    assert frames.shape == (2, 2)
    assert frames.dtype == np.float32
    assert (frames[0] == frames[1]).all()
    assert frames[0, 0] != frames[0, 1]


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_no_bytes_are_no_samples(name: str) -> None:
    assert decoded(name, b"").shape == (0, 1)


@pytest.mark.parametrize(
    ("name", "size", "channels"), [("pcm16", 3, 1), ("float32", 6, 1), ("mulaw", 3, 2), ("pcm16", 6, 2)]
)
def test_part_of_a_frame_is_refused(name: str, size: int, channels: int) -> None:
    with pytest.raises(AudioError, match=f"^{size} bytes are no whole number of {name} frames"):
        decoded(name, bytes(size), channels)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 40.0])
def test_floats_that_are_no_samples_are_refused(value: float) -> None:
    with pytest.raises(AudioError, match="audio holds"):
        decoded("float32", np.array([0.0, value], dtype="<f4").tobytes())


def test_an_unknown_encoding_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AudioError, match="encoding is 'pcm24'; choose one of pcm16, float32, mulaw, alaw"):
        find_encoding("pcm24")
