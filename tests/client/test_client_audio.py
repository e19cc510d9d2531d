import io
import os
import sys
import threading
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from oasr_client import audio
from oasr_client.errors import AudioError

RATES = (8_000, 11_025, 16_000, 22_050, 44_100, 48_000)


def tone(rate: int, channels: int, seconds: float = 0.5, hertz: float = 440.0) -> np.ndarray:
    wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)
    return np.repeat(wave.astype(np.float32)[:, None], channels, axis=1)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("channels", [1, 2, 6])
def test_any_rate_and_channel_count_becomes_mono_16k(tmp_path: Path, rate: int, channels: int) -> None:
    path = tmp_path / "tone.wav"
    soundfile.write(path, tone(rate, channels), rate, subtype="FLOAT")
    samples = audio.read(path)
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert samples.size == pytest.approx(8_000, abs=2)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    assert np.argmax(spectrum) * 16_000 / samples.size == pytest.approx(440, abs=2)
    assert np.abs(samples[1000:-1000]).max() == pytest.approx(0.5, abs=0.01)


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    left = np.full(160, 0.5, dtype=np.float32)
    soundfile.write(path, np.stack([left, -left / 2], axis=1), 16_000, subtype="FLOAT")
    assert audio.read(path) == pytest.approx(np.full(160, 0.125))


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "AIFF", "MP3"])
def test_bytes_of_any_container_are_read(kind: str) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(16_000, 1), 16_000, format=kind)
    assert audio.read(buffer.getvalue()).size == pytest.approx(8_000, abs=2_500)


def test_pcm_of_a_16_bit_file_is_exact(tmp_path: Path) -> None:
    values = np.arange(-32768, 32768).astype(np.int16)
    soundfile.write(tmp_path / "ramp.wav", values, 16_000)
    assert np.array_equal(audio.to_pcm(audio.read(tmp_path / "ramp.wav")), values)


def test_pcm_rounds_and_clips() -> None:
    values = np.array([0.0, 0.6 / 32768, -0.6 / 32768, 1.0, -1.0, 7.0, -7.0, 1e38], dtype=np.float32)
    assert audio.to_pcm(values).tolist() == [0, 1, -1, 32767, -32768, 32767, -32768, 32767]


def test_int16_passes_unchanged_and_returns_as_float() -> None:
    values = np.array([-32768, -1, 0, 1, 32767], dtype=np.int16)
    assert np.array_equal(audio.to_pcm(values), values)
    assert np.array_equal(audio.to_pcm(audio.to_float(values)), values)
    assert audio.to_float(values).dtype == np.float32


@pytest.mark.parametrize("convert", [audio.to_pcm, audio.to_float])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(convert, bad: float) -> None:
    with pytest.raises(AudioError, match="not finite"):
        convert(np.array([0.0, bad], dtype=np.float32))


@pytest.mark.parametrize("convert", [audio.to_pcm, audio.to_float])
def test_other_dtypes_and_shapes_are_refused(convert) -> None:
    with pytest.raises(AudioError, match="int32"):
        convert(np.zeros(4, dtype=np.int32))
    with pytest.raises(AudioError, match="not mono"):
        convert(np.zeros((2, 4), dtype=np.float32))
    assert convert(np.zeros((1, 4), dtype=np.float32)).shape == (4,)
    assert convert(np.zeros((1, 0), dtype=np.int16)).shape == (0,)


def test_what_is_no_audio_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("hello " * 100)
    (tmp_path / "noise.raw").write_bytes(bytes(range(256)))
    soundfile.write(tmp_path / "header.wav", np.zeros(0, dtype=np.int16), 16_000)
    soundfile.write(tmp_path / "nan.wav", np.array([0, np.nan], dtype=np.float32), 16_000, subtype="FLOAT")
    for name, reason in {
        "missing.wav": "no such file: .*missing.wav",
        "empty.wav": "empty.wav is empty",
        "text.wav": "cannot read .*text.wav as audio",
        "noise.raw": "cannot read .*noise.raw as audio",
        "header.wav": "header.wav holds no samples",
        "nan.wav": "nan.wav holds samples that are not finite",
        ".": "cannot read",
    }.items():
        with pytest.raises(AudioError, match=reason):
            audio.read(tmp_path / name)


@pytest.mark.parametrize(("total", "chunk_ms"), [(16_000, 640), (10_240, 640), (1, 640), (100, 0.01), (1_601, 100)])
def test_chunks_join_to_the_clip(total: int, chunk_ms: float) -> None:
    samples = np.arange(total, dtype=np.int16)
    pieces = list(audio.chunks(samples, chunk_ms))
    size = max(1, round(16 * chunk_ms))
    assert np.array_equal(np.concatenate(pieces), samples)
    assert all(piece.size == size for piece in pieces[:-1])
    assert 0 < pieces[-1].size <= size


def test_no_samples_make_no_chunk_and_no_length_is_an_error() -> None:
    assert list(audio.chunks(np.zeros(0, dtype=np.int16), 640)) == []
    with pytest.raises(ValueError, match="above 0"):
        list(audio.chunks(np.zeros(4), 0))


def test_a_part_of_a_file_is_read(tmp_path: Path) -> None:
    wave = np.arange(32_000, dtype=np.int16)
    soundfile.write(tmp_path / "ramp.wav", wave, 16_000)
    part = audio.to_pcm(audio.read(tmp_path / "ramp.wav", offset_s=0.5, duration_s=0.25))
    assert np.array_equal(part, wave[8_000:12_000])
    assert audio.read(tmp_path / "ramp.wav", offset_s=1.5).size == 8_000
    assert audio.read(tmp_path / "ramp.wav", offset_s=1.5, duration_s=100).size == 8_000
    with pytest.raises(AudioError, match="holds no samples behind 3 s"):
        audio.read(tmp_path / "ramp.wav", offset_s=3.0)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(16_000, 1), 16_000, format="WAV")
    writer = threading.Thread(target=lambda: path.write_bytes(buffer.getvalue()), daemon=True)
    writer.start()
    assert audio.read(path).size == 8_000
    writer.join(10)


def m4a(path: Path, samples: np.ndarray, rate: int) -> None:
    """Writes samples [N, channels] as AAC."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=rate, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples.T), format="fltp", layout="stereo")
        frame.sample_rate = rate
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def test_what_libsndfile_cannot_read_pyav_does(tmp_path: Path) -> None:
    m4a(tmp_path / "tone.m4a", tone(44_100, 2, seconds=2.0), 44_100)
    whole = audio.read(tmp_path / "tone.m4a")
    assert whole.size == pytest.approx(32_000, abs=2_000)
    spectrum = np.abs(np.fft.rfft(whole * np.hanning(whole.size)))
    assert np.argmax(spectrum) * 16_000 / whole.size == pytest.approx(440, abs=2)
    part = audio.read(tmp_path / "tone.m4a", offset_s=0.5, duration_s=0.5)
    assert part.size == pytest.approx(8_000, abs=2)


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    m4a(tmp_path / "tone.m4a", tone(44_100, 2), 44_100)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(AudioError, match=r'tone.m4a as audio: .* pip install "oasr-triton\[formats\]"'):
        audio.read(tmp_path / "tone.m4a")
