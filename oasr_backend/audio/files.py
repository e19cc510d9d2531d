"""The bytes of a recording to mono samples at the models' rate."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oasr_backend.audio import libav, libsndfile
from oasr_backend.audio.bandwidth import NARROW_BAND, is_narrow_band
from oasr_backend.audio.containers import Container, find_container, mended_wav, ogg_is_cut
from oasr_backend.audio.encodings import Encoding
from oasr_backend.audio.limits import Allowance, AudioLimits
from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.audio.reading import Reading, Unreadable
from oasr_backend.audio.recording import Recording
from oasr_backend.errors import AudioError

FORMATS = "WAV, FLAC, OGG, Opus, MP3, M4A, AAC, AIFF or WebM"
# Raw frames converted at a time.
_BLOCK_FRAMES = 1 << 16
# Coders cut or add so much at the ends of what they code.
_CODER_SLACK_S = 0.25
_SLACK_S = 0.01


@dataclass(frozen=True)
class DecodedAudio:
    """`samples` [n] float32 at SAMPLE_RATE; the rest is of the file: rate in Hz, seconds at that rate."""

    samples: np.ndarray
    format: str
    sample_rate: int
    channels: int
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RawFormat:
    """What nothing in raw audio says; `channels` are interleaved."""

    encoding: Encoding
    sample_rate: int
    channels: int


def decode_file(data: bytes, limits: AudioLimits, channel: int | None = None) -> DecodedAudio:
    """Decodes an audio file of any format of ours: channels are mixed down, or the one of number `channel` is taken.

    What can be read of a damaged file is given with a warning. Raises AudioError.
    """
    if not data:
        raise AudioError("AUDIO is empty; send the bytes of an audio file")
    allowance = Allowance(limits, len(data))
    container = find_container(data)
    attempts = []
    failures = []
    for read in _readers(data, container):
        recording = Recording(allowance, channel)
        try:
            reading = read(recording)
        except Unreadable as error:
            failures.append(str(error))
            continue
        attempts.append((reading, recording))
        if not reading.is_broken:
            break
    if not attempts:
        raise AudioError(_unreadable(container, failures))
    reading, recording = max(attempts, key=lambda attempt: attempt[1].seconds)
    warnings = [*_doubts(data, container, reading, recording)]
    if _is_stand_in(container):
        warnings.append(
            "AUDIO was read without the server's package av: an MP3 that was joined of several, or has a variable bit "
            "rate, may end early"
        )
    return _decoded(recording, reading.format, warnings)


def decode_raw(data: bytes, raw: RawFormat, limits: AudioLimits, channel: int | None = None) -> DecodedAudio:
    """Decodes samples without a container, as `decode_file` does files. Raises AudioError."""
    allowance = Allowance(limits, len(data))
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        raise AudioError("AUDIO is a WAV file, and encoding says that it is raw; leave encoding out")
    recording = Recording(allowance, channel)
    recording.set_format(raw.sample_rate, raw.channels)
    array = np.frombuffer(data, dtype=np.uint8)
    step = _BLOCK_FRAMES * raw.encoding.width * raw.channels
    for begin in range(0, len(array), step):
        recording.add(raw.encoding.samples(array[begin : begin + step], raw.channels), raw.sample_rate)
    return _decoded(recording, raw.encoding.name, [])


def _decoded(recording: Recording, name: str, warnings: list[str]) -> DecodedAudio:
    samples = recording.samples()
    if recording.sample_rate >= SAMPLE_RATE and is_narrow_band(samples):
        warnings.append(NARROW_BAND)
    return DecodedAudio(samples, name, recording.sample_rate, recording.channels, recording.seconds, tuple(warnings))


def _readers(data: bytes, container: Container | None) -> list[Callable[[Recording], Reading]]:
    """Who may read the file, the better one first."""
    # libsndfile knows formats that we do not name.
    readers = container.readers if container is not None else ("libsndfile",)
    found: list[Callable[[Recording], Reading]] = []
    for reader in readers:
        if reader == "libsndfile":
            found.append(lambda recording: libsndfile.read(mended_wav(data), recording))
        elif libav.is_installed():
            assert container is not None
            found.append(lambda recording: libav.read(data, container, recording))
    return found


def _is_stand_in(container: Container | None) -> bool:
    return container is not None and container.readers[0] == "libav" and not libav.is_installed()


def _unreadable(container: Container | None, failures: list[str]) -> str:
    if container is None:
        return f"AUDIO is no audio file that is known here ({'; '.join(failures)}); send {FORMATS}"
    if not failures:
        return (
            f"AUDIO is {container.name}, and the server lacks the Python package av that reads it; "
            "install that on the server, or send WAV or FLAC"
        )
    return (
        f"AUDIO begins like {container.name} and cannot be read ({'; '.join(failures)}); it is cut off or "
        "damaged: make it again"
    )


def _doubts(data: bytes, container: Container | None, reading: Reading, recording: Recording) -> list[str]:
    """Warnings: not all that the file promises was heard."""
    doubts = []
    promised, seconds = reading.promised_seconds, recording.seconds
    is_coded = container is None or container.readers[0] == "libav"
    slack = _CODER_SLACK_S if is_coded else _SLACK_S
    if promised is not None and seconds < promised - slack:
        doubts.append(
            f"AUDIO is cut off or damaged: its header promises {promised:.2f} s, and {seconds:.2f} s could be read"
        )
    elif reading.is_broken:
        doubts.append(f"AUDIO is damaged: {seconds:.2f} s could be read, and parts are missing")
    elif container is not None and container.libav == "ogg" and ogg_is_cut(data):
        doubts.append(f"AUDIO is cut off: its last page is missing, and {seconds:.2f} s could be read")
    if reading.tracks > 1:
        doubts.append(f"AUDIO has {reading.tracks} audio tracks; one of them was read")
    return doubts
