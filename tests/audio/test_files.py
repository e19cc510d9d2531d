"""Files: every format, any rate and channel count; what is cut off, damaged or a bomb fails alone, in words."""

import re
import struct
import time
from collections.abc import Callable

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.audio import libav, source
from oasr_backend.audio.bandwidth import NARROW_BAND
from oasr_backend.audio.encodings import find_encoding
from oasr_backend.audio.files import DecodedAudio, RawFormat, decode_file, decode_raw
from oasr_backend.audio.limits import AudioLimits
from oasr_backend.audio.recording import Recording
from oasr_backend.errors import AudioError, ConfigError
from tests.audio.recordings import FORMATS, RATE, muxed, silent_film, sndfile, speech, telephone

LIMITS = AudioLimits()
SECONDS = len(speech()) / RATE


def decoded(data: bytes, channel: int | None = None, **limits: float) -> DecodedAudio:
    return decode_file(data, AudioLimits(**limits), channel)  # type: ignore[arg-type]


def likeness(samples: np.ndarray) -> float:
    """The highest correlation with the speech over shifts that a coder may make."""
    wave = np.concatenate([samples, np.zeros(max(0, len(speech()) + 4000 - len(samples)), dtype=np.float32)])
    norm = float(np.linalg.norm(speech()))
    size = 1 << 18
    spectrum = np.fft.rfft(wave, size) * np.fft.rfft(speech(), size).conj()
    return float(np.fft.irfft(spectrum, size)[:4000].max() / norm / np.linalg.norm(wave))


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_is_heard_whole(name: str) -> None:
    audio = decoded(FORMATS[name](speech()))
    assert audio.samples.dtype == np.float32
    # Coders add up to a few frames at the ends, and cut nothing.
    assert SECONDS - 0.01 <= len(audio.samples) / RATE <= SECONDS + 0.13
    assert likeness(audio.samples) > (0.8 if name == "AMR" else 0.98)
    assert audio.warnings == ()


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_any_rate_is_resampled_without_a_seam(rate: int, kind: str) -> None:
    """Files are longer than the blocks that they are read in."""
    wave = soxr.resample(np.tile(speech(), 4), RATE, rate)
    audio = decoded(sndfile(wave, rate, kind, "PCM_24"))
    assert audio.sample_rate == rate
    np.testing.assert_allclose(audio.samples, soxr.resample(wave, rate, RATE), atol=1e-5)


@pytest.mark.parametrize("rate", [4000, 7999, 400_000])
def test_a_rate_that_no_recorder_has_is_refused(rate: int) -> None:
    with pytest.raises(AudioError, match=f"AUDIO is at {rate} Hz; send audio of 8000 to 384000 Hz"):
        decoded(sndfile(np.zeros(100), rate))


def test_channels_are_mixed_or_one_is_heard() -> None:
    other = np.roll(speech(), 5000)
    data = sndfile(np.stack([speech(), other, np.zeros_like(other)], axis=1), subtype="FLOAT")
    np.testing.assert_allclose(decoded(data).samples, (speech() + other) / 3, atol=1e-6)
    np.testing.assert_array_equal(decoded(data, 0).samples, speech())
    np.testing.assert_array_equal(decoded(data, 1).samples, other)
    assert not decoded(data, 2).samples.any()
    assert decoded(data).channels == 3
    for bad in (3, 100):
        with pytest.raises(AudioError, match=f"channel is {bad} and AUDIO has 3 channels, numbers 0 to 2"):
            decoded(data, bad)


def test_a_coded_file_has_channels_too() -> None:
    data = FORMATS["M4A"](speech())
    assert likeness(decoded(data, 1).samples) > 0.98
    with pytest.raises(AudioError, match="2 channels"):
        decoded(data, 2)


def test_more_than_one_track_is_said() -> None:
    (warning,) = decoded(muxed(speech(), "matroska", "flac", tracks=2)).warnings
    assert "2 audio tracks" in warning


# cut off and damaged


CUT = {
    "WAV, 16 bits": (0.6, "its header promises"),
    "WAV, 64-bit lengths": (0.6, "its header promises"),
    "FLAC": (0.6, "its header promises"),
    "AIFF": (0.6, "its header promises"),
    "W64": (0.6, "its header promises"),
    "AU": (0.6, "its header promises"),
    "MP3": (0.6, "its header promises"),
    "WebM, Opus": (0.6, "its header promises"),
    "MP4, in fragments": (0.6, "could be read"),
    "OGG, Vorbis": (0.6, "its last page is missing"),
    "OGG, Opus": (0.6, "its last page is missing"),
}


@pytest.mark.parametrize("name", list(CUT))
def test_a_file_that_is_cut_off_gives_what_it_holds_and_says_so(name: str) -> None:
    part, words = CUT[name]
    whole = FORMATS[name](np.tile(speech(), 4))
    audio = decoded(whole[: int(len(whole) * part)])
    assert 1 < len(audio.samples) / RATE < 4 * SECONDS * 0.75
    (warning,) = audio.warnings
    assert words in warning


def test_an_mp4_without_its_index_is_refused() -> None:
    data = FORMATS["MP4"](speech())
    with pytest.raises(AudioError, match=r"begins like MP4 and cannot be read \(.+\); it is cut off or damaged"):
        decoded(data[: len(data) * 3 // 4])


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, 0x7FFFFFFF - 36, 0x80000000], ids=hex)
def test_a_wav_from_a_pipe_says_no_length_and_is_whole(length: int) -> None:
    data = bytearray(sndfile(speech(), subtype="PCM_16"))
    struct.pack_into("<I", data, data.index(b"data") + 4, length)
    struct.pack_into("<I", data, 4, (length + 36) & 0xFFFFFFFF if length else 0)
    audio = decoded(bytes(data))
    assert (len(audio.samples), audio.warnings) == (len(speech()), ())


def test_a_hole_in_a_file_costs_the_hole_alone() -> None:
    data = bytearray(FORMATS["FLAC"](np.tile(speech(), 4)))
    data[len(data) // 2 : len(data) // 2 + 50] = bytes(50)
    audio = decoded(bytes(data))
    assert 4 * SECONDS - 1.5 < len(audio.samples) / RATE < 4 * SECONDS
    assert len(audio.warnings) == 1


def test_mp3s_that_were_joined_are_heard_to_the_end() -> None:
    data = FORMATS["MP3"](speech())
    audio = decoded(data + data)
    assert len(audio.samples) / RATE == pytest.approx(2 * SECONDS, abs=0.2)
    assert audio.warnings == ()


def test_tags_before_the_audio_are_passed_over() -> None:
    tag = b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)
    for name in ("AAC", "FLAC", "MP3"):
        assert likeness(decoded(tag + FORMATS[name](speech())).samples) > 0.98


def test_tags_in_any_encoding_do_no_harm() -> None:
    data = FORMATS["M4A"](speech())
    assert data.count(b"Lavf") == 1
    assert likeness(decoded(data.replace(b"Lavf", b"L\xe4\xff\x80")).samples) > 0.98


# refused


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "AUDIO is empty"),
        (b"hello, this is a text file\n" * 100, "no audio file that is known here"),
        (b"#EXTM3U\n#EXTINF:10,\nfile:///etc/hostname\n", "no audio file that is known here"),
        (b"RIFF", "no audio file that is known here"),
        (b"RIFF\x10\x00\x00\x00WAVE", "begins like WAV and cannot be read"),
        (b"\xff\xfb\x90\x64" + bytes(3000), "begins like MP3 and cannot be read"),
        (b"\x1aE\xdf\xa3" + bytes(3000), "begins like WebM and cannot be read"),
        (sndfile(np.array([0.5, np.nan], dtype=np.float32), subtype="FLOAT"), "NaN or infinity"),
    ],
    ids=["empty", "text", "playlist", "4 bytes", "12 bytes", "MP3", "WebM", "NaN"],
)
def test_what_is_no_audio_is_refused_in_words(data: bytes, words: str) -> None:
    with pytest.raises(AudioError, match=words):
        decoded(data)


def test_a_film_without_sound_is_refused() -> None:
    with pytest.raises(AudioError, match="MP4 without an audio track"):
        decoded(silent_film())


@pytest.mark.parametrize("name", ["FLAC", "FLAC, from a pipe", "MP3", "WebM, live", "AIFF"])
def test_a_small_file_that_grows_is_stopped(name: str) -> None:
    data = FORMATS[name](np.zeros(30 * RATE, dtype=np.float32))
    assert len(data) < 1_000_000
    with pytest.raises(AudioError, match="more than max_audio_seconds, 20; cut or stream it"):
        decoded(data, max_audio_seconds=20)
    assert len(decoded(data, max_audio_seconds=40).samples) == pytest.approx(30 * RATE, abs=2000)


@pytest.mark.parametrize("name", ["FLAC", "M4A"])
def test_a_file_that_says_itself_that_it_is_too_long_is_refused_before_the_work(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = FORMATS[name](np.zeros(30 * RATE, dtype=np.float32))
    decoded(data, max_audio_seconds=31)
    monkeypatch.setattr(Recording, "add", lambda *block: pytest.fail("a block was decoded"))
    with pytest.raises(AudioError, match="more than max_audio_seconds"):
        decoded(data, max_audio_seconds=29)


BOMBS = {
    # Silence at the highest rate in eight channels: 100 times as many samples as bytes.
    "FLAC": sndfile(np.zeros((10 * 384_000, 8), dtype=np.int16), 384_000, kind="FLAC"),
    "AMR": b"#!AMR\n" + bytes(1_000_000),
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_file_that_takes_too_long_is_stopped(name: str) -> None:
    assert len(BOMBS[name]) <= 1_000_006
    begin = time.thread_time()
    with pytest.raises(AudioError, match=r"more than max_decode_seconds, 0\.05, to decode"):
        decoded(BOMBS[name], max_decode_seconds=0.05, max_audio_seconds=1e9)
    assert time.thread_time() - begin < 5


HEADERS = {
    "WAV": b"RIFF\xff\xff\xff\xffWAVE" + b"junk\0\0\0\0" * 100_000,
    "MP4": b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42" + b"\0\0\0\x08free" * 100_000,
    "MP3": b"ID3\x04\0\0\0\0\0\0" * 100_000,
    "AAC": b"\xff\xf1\x50\x80\x00\xff\xfc" * 100_000,
}


@pytest.mark.parametrize("name", list(HEADERS))
def test_a_header_of_nothing_but_parts_is_refused(name: str) -> None:
    with pytest.raises(AudioError, match=f"begins like {name} and cannot be read"):
        decoded(HEADERS[name])


@pytest.mark.parametrize("name", ["FLAC", "M4A"])
def test_a_library_that_works_too_long_without_giving_control_back_gets_no_more(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = FORMATS[name](speech())
    monkeypatch.setattr(source, "_HEADER_S", -1.0)
    with pytest.raises(AudioError, match="cannot be read"):
        decoded(data)


def test_too_many_channels_and_bytes_are_refused() -> None:
    with pytest.raises(AudioError, match="33 channels"):
        decoded(sndfile(np.zeros((10, 33), dtype=np.int16)))
    with pytest.raises(AudioError, match="AUDIO has 2 MiB and max_audio_mib is 1"):
        decoded(bytes(2 << 20), max_audio_mib=1)


@pytest.mark.parametrize("name", ["max_audio_mib", "max_decode_seconds"])
def test_a_limit_of_nothing_is_no_limit(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0; it must be above 0"):
        AudioLimits(**{name: 0})


def test_the_longest_file_is_two_hours_unless_something_else_is_said() -> None:
    assert AudioLimits().longest_seconds == 7200.0
    assert AudioLimits(max_audio_seconds=30.0).longest_seconds == 30.0
    with pytest.raises(AudioError, match="more than max_audio_seconds, 0; cut or stream it"):
        decoded(sndfile(np.zeros(1600, dtype=np.int16)), max_audio_seconds=0)


def test_without_the_package_av_its_formats_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libav, "is_installed", lambda: False)
    with pytest.raises(AudioError, match="AUDIO is MP4, and the server lacks the Python package av"):
        decoded(FORMATS["M4A"](speech()))
    assert decoded(FORMATS["FLAC"](speech())).warnings == ()
    audio = decoded(FORMATS["MP3"](speech()))
    assert likeness(audio.samples) > 0.98
    assert "without the server's package av" in audio.warnings[0]


@given(
    name=st.sampled_from(sorted(FORMATS)),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=20),
    end=st.floats(0.001, 1),
)
@settings(max_examples=250, deadline=None, derandomize=True)
def test_damage_of_any_kind_gives_audio_or_a_sentence(name: str, changes: list[tuple[float, int]], end: float) -> None:
    data = bytearray(short_file(name))
    for place, value in changes:
        # Most of what can go wrong is in the header.
        data[int(place**3 * (len(data) - 1))] = value
    try:
        cut_off = bytes(data[: max(1, int(end * len(data)))])
        outcome: DecodedAudio | AudioError = decoded(cut_off, max_audio_seconds=60)
    except AudioError as error:
        outcome = error
    if isinstance(outcome, AudioError):
        assert re.fullmatch(r"AUDIO [^\n<>]+", str(outcome))
    else:
        assert np.isfinite(outcome.samples).all()


_SHORT: dict[str, bytes] = {}


def short_file(name: str) -> bytes:
    if name not in _SHORT:
        _SHORT[name] = FORMATS[name](speech()[:16000])
    return _SHORT[name]


# raw


def raw(data: bytes, encoding: str, rate: int = RATE, channels: int = 1, channel: int | None = None) -> DecodedAudio:
    return decode_raw(data, RawFormat(find_encoding(encoding), rate, channels), LIMITS, channel)


@pytest.mark.parametrize(
    ("encoding", "subtype"), [("pcm16", "PCM_16"), ("float32", "FLOAT"), ("mulaw", "ULAW"), ("alaw", "ALAW")]
)
def test_raw_audio_is_as_good_as_the_same_in_a_file(encoding: str, subtype: str) -> None:
    """Longer than a block."""
    wave = np.tile(speech(), 6)
    for rate in (8000, RATE):
        at_rate = soxr.resample(wave, RATE, rate)
        audio = raw(sndfile(at_rate, rate, kind="RAW", subtype=subtype), encoding, rate)
        np.testing.assert_array_equal(audio.samples, decoded(sndfile(at_rate, rate, subtype=subtype)).samples)
        assert (audio.format, audio.sample_rate, audio.channels) == (encoding, rate, 1)


def test_raw_channels_are_interleaved() -> None:
    both = np.stack([speech(), -speech()], axis=1)
    data = sndfile(both, kind="RAW", subtype="FLOAT")
    np.testing.assert_array_equal(raw(data, "float32", channels=2, channel=1).samples, -speech())
    assert not raw(data, "float32", channels=2).samples.any()


def test_raw_audio_that_cannot_be_is_refused() -> None:
    with pytest.raises(AudioError, match="7 bytes are no whole number of pcm16 frames of 4 bytes"):
        raw(bytes(7), "pcm16", channels=2)
    with pytest.raises(AudioError, match="AUDIO is a WAV file, and encoding says that it is raw"):
        raw(sndfile(speech()), "pcm16")
    assert raw(b"", "pcm16").samples.shape == (0,)


# telephone audio in disguise


@pytest.mark.parametrize(("rate", "expected"), [(8000, ()), (16000, (NARROW_BAND,)), (48000, (NARROW_BAND,))])
def test_a_file_that_claims_more_than_it_holds_is_warned_of(rate: int, expected: tuple[str, ...]) -> None:
    make: Callable[[np.ndarray], np.ndarray] = lambda wave: soxr.resample(wave, RATE, rate)  # noqa: E731
    assert decoded(sndfile(make(telephone(speech())), rate)).warnings == expected
    assert decoded(sndfile(make(speech()), rate)).warnings == ()
