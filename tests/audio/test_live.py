"""A stream's audio as its client declared it."""

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.audio.bandwidth import NARROW_BAND
from oasr_backend.audio.live import LiveAudio, LiveFormat
from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.errors import AudioError
from tests.audio.recordings import sndfile, speech, telephone

NOTHING = np.zeros(0, dtype=np.float32)


def as_bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


def stream(encoding: str | None = None, sample_rate: int | None = None) -> LiveAudio:
    return LiveAudio(LiveFormat.of(encoding, sample_rate))


def test_what_is_declared_of_nothing_passes_as_it_is() -> None:
    live = stream()
    floats, whole = speech()[:1000], (speech()[:1000] * 32767).astype(np.int16)
    assert live.take(floats, False) is floats
    assert live.take(whole, True) is whole
    assert live.seconds == 2000 / SAMPLE_RATE


def test_g711_is_at_8_khz_unless_it_says_otherwise() -> None:
    assert LiveFormat.of("mulaw", None).sample_rate == LiveFormat.of("alaw", None).sample_rate == 8000
    assert LiveFormat.of("alaw", 16000).sample_rate == 16000
    assert LiveFormat.of("pcm16", None).sample_rate == LiveFormat.of(None, None).sample_rate == 16000


@given(
    name=st.sampled_from(["mulaw", "alaw", "pcm16", "float32"]),
    rate=st.sampled_from([8000, 16000, 22050, 48000]),
    sizes=st.lists(st.integers(0, 5000), max_size=10),
    refused=st.sets(st.integers(0, 9)),
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_any_chunking_gives_the_whole_and_a_refused_chunk_leaves_no_trace(
    name: str, rate: int, sizes: list[int], refused: set[int]
) -> None:
    wave = soxr.resample(speech()[:16000], SAMPLE_RATE, rate)
    subtype = {"mulaw": "ULAW", "alaw": "ALAW", "pcm16": "PCM_16", "float32": "FLOAT"}[name]
    data = as_bytes(sndfile(wave, rate, kind="RAW", subtype=subtype))
    live = stream(name, rate)
    width = {"mulaw": 1, "alaw": 1, "pcm16": 2, "float32": 4}[name]
    wrong = np.zeros(5, dtype=np.int16 if name != "pcm16" else np.float32)
    pieces, begin = [], 0
    for number, size in enumerate(sizes):
        if number in refused:
            with pytest.raises(AudioError):
                live.take(wrong, False)
        pieces.append(live.take(data[begin : begin + size * width], False))
        begin = min(begin + size * width, len(data))
        assert live.seconds == pytest.approx(begin / width / rate)
    pieces.append(live.take(data[begin:], True))
    whole = LiveFormat.of(name, rate).encoding.samples(data)[:, 0]  # type: ignore[union-attr]
    expected = whole if rate == SAMPLE_RATE else soxr.resample(whole, rate, SAMPLE_RATE)
    np.testing.assert_allclose(np.concatenate(pieces), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("encoding", "chunk", "words"),
    [
        (None, np.zeros(10, dtype=np.uint8), "declared no encoding"),
        ("pcm16", np.zeros(3, dtype=np.uint8), "3 bytes"),
        ("pcm16", np.zeros(3, dtype=np.float32), "WAV is given, and START declared encoding pcm16"),
        ("float32", np.zeros(3, dtype=np.int16), "PCM is given, and START declared encoding float32"),
        ("mulaw", np.zeros(3, dtype=np.int16), "send that as BYTES"),
        (None, np.array([0, np.nan], dtype=np.float32), "NaN"),
        ("float32", np.array([40.0], dtype=np.float32), "must lie in"),
    ],
)
def test_a_chunk_that_is_not_as_declared_is_refused(encoding: str | None, chunk: np.ndarray, words: str) -> None:
    live = stream(encoding, 8000)
    with pytest.raises(AudioError, match=words):
        live.take(chunk, True)
    assert live.seconds == 0
    live.take(NOTHING, True)


def test_a_filter_that_goes_past_the_range_makes_no_chunk_that_the_engine_refuses() -> None:
    square = np.where(np.arange(8000) // 5 % 2, 32.0, -32.0).astype(np.float32)
    assert np.abs(soxr.resample(square, 8000, SAMPLE_RATE)).max() > 32
    assert np.abs(stream(None, 8000).take(square, True)).max() == 32


def test_only_audio_that_claims_more_is_warned_of() -> None:
    narrow = telephone(np.tile(speech(), 2))
    live = stream()
    live.take(narrow, True)
    assert live.warnings == (NARROW_BAND,)
    live = stream(None, 48000)
    live.take(soxr.resample(narrow, SAMPLE_RATE, 48000), True)
    assert live.warnings == (NARROW_BAND,)
    live = stream(None, 8000)
    live.take(soxr.resample(narrow, SAMPLE_RATE, 8000), True)
    assert live.warnings == ()
