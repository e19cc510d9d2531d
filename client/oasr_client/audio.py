"""Audio on the client's side: any file to 16 kHz mono, samples to the wire format, clips to chunks."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from oasr_client.errors import AudioError

SAMPLE_RATE = 16_000
"""Samples per second of everything that is sent."""

Samples = npt.NDArray[np.float32]
Pcm = npt.NDArray[np.int16]


def read(
    source: str | Path | bytes,
    sample_rate: int = SAMPLE_RATE,
    *,
    offset_s: float = 0.0,
    duration_s: float | None = None,
) -> Samples:
    """Reads a file that libsndfile knows (WAV, FLAC, OGG, MP3, AIFF, ...), or PyAV where it is installed (M4A, ...).

    Args:
        source: a path, or the bytes of a file.
        sample_rate: samples per second of the result.
        offset_s: seconds to leave out at the beginning.
        duration_s: seconds to read; None: to the end.
    Returns:
        float32 [N] in [-1, 1], mono (mean of the channels).
    Raises:
        AudioError: missing, empty, not audio, with samples that are not finite, or shorter than `offset_s`.
    """
    import soxr

    name = "the audio" if isinstance(source, bytes) else str(source)
    mono, rate = _decoded(source, name, offset_s, duration_s)
    if mono.size == 0:
        where = f" behind {offset_s:g} s" if offset_s else ""
        raise AudioError(f"{name} holds no samples{where}: nothing to transcribe")
    if not np.isfinite(mono).all():
        raise AudioError(f"{name} holds samples that are not finite numbers: convert it again from its source")
    if rate != sample_rate:
        mono = soxr.resample(mono, rate, sample_rate)
    return np.ascontiguousarray(mono, dtype=np.float32)


def _decoded(source: str | Path | bytes, name: str, offset_s: float, duration_s: float | None) -> tuple[Samples, int]:
    import soundfile

    with io.BytesIO(source) if isinstance(source, bytes) else _opened(source) as file:
        try:
            with soundfile.SoundFile(file) as sound:
                sound.seek(min(sound.frames, round(offset_s * sound.samplerate)))
                count = -1 if duration_s is None else round(duration_s * sound.samplerate)
                return _mixed(sound.read(count, dtype="float32", always_2d=True)), sound.samplerate
        except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
            file.seek(0)
            return _by_pyav(file, name, offset_s, duration_s, error)


def _by_pyav(
    file: IO[bytes], name: str, offset_s: float, duration_s: float | None, cause: Exception
) -> tuple[Samples, int]:
    """The first audio stream of a container that soundfile cannot read."""
    try:
        import av
    except ImportError:
        raise AudioError(
            f"cannot read {name} as audio: the format is unknown or damaged; convert it to WAV or FLAC, or, for M4A "
            'and the like, pip install "oasr-triton[formats]"'
        ) from cause
    try:
        with av.open(file) as container:
            if not container.streams.audio:
                raise AudioError(f"cannot read {name} as audio: it holds no audio stream")
            rate = container.streams.audio[0].sample_rate
            planes = av.AudioResampler(format="fltp")
            end = None if duration_s is None else offset_s + duration_s
            parts, done = [], 0
            for frame in container.decode(audio=0):
                for plain in planes.resample(frame):
                    parts.append(_mixed(plain.to_ndarray().T))
                    done += parts[-1].size
                if end is not None and done >= end * rate:
                    break
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError(
            f"cannot read {name} as audio: the format is unknown or damaged; convert it to WAV or FLAC"
        ) from error
    mono = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
    return mono[round(offset_s * rate) : None if end is None else round(end * rate)], rate


def _mixed(frames: npt.NDArray[Any]) -> Samples:
    """Frames [N, channels] as mono [N]."""
    return frames.mean(axis=1, dtype=np.float32)


def _opened(path: str | Path) -> IO[bytes]:
    """A file that can be read at any place; a pipe is read to its end."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
        if file.seekable() and file.seek(0, io.SEEK_END):
            file.seek(0)
            return file
        with file:
            data = b"" if file.seekable() else file.read()
    except FileNotFoundError:
        raise AudioError(f"no such file: {path}") from None
    except OSError as error:
        raise AudioError(f"cannot read {path}: {error.strerror or error}") from None
    if not data:
        raise AudioError(f"{path} is empty: nothing to transcribe")
    return io.BytesIO(data)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file.

    Raises:
        AudioError: the file is missing, empty or not readable.
    """
    with _opened(path) as file:
        return file.read()


def to_pcm(samples: npt.NDArray[Any]) -> Pcm:
    """Samples as int16 [N]: floats in [-1, 1] are scaled by 32768, rounded and clipped; int16 passes unchanged.

    Raises:
        AudioError: another dtype, more than one dimension longer than 1, or a value that is not finite.
    """
    flat = _flat(samples)
    if flat.dtype == np.int16:
        return flat
    scaled = np.clip(flat.astype(np.float32), -1.0, 1.0) * np.float32(32768.0)
    return np.minimum(np.rint(scaled), 32767).astype(np.int16)


def to_float(samples: npt.NDArray[Any]) -> Samples:
    """Samples as float32 [N] in [-1, 1]: int16 is divided by 32768, floats pass unchanged.

    Raises:
        AudioError: as `to_pcm`.
    """
    flat = _flat(samples)
    return flat.astype(np.float32) / np.float32(32768.0) if flat.dtype == np.int16 else flat.astype(np.float32)


def chunks(samples: npt.NDArray[Any], chunk_ms: float) -> Iterator[npt.NDArray[Any]]:
    """Cuts samples [N] at 16 kHz into pieces of `chunk_ms` milliseconds; the last one holds what is left.

    Raises:
        ValueError: `chunk_ms` is not above 0.
    """
    if chunk_ms <= 0:
        raise ValueError(f"chunk_ms is {chunk_ms}: it must be above 0")
    size = max(1, round(SAMPLE_RATE * chunk_ms / 1000))
    for begin in range(0, samples.shape[0], size):
        yield samples[begin : begin + size]


def seconds(samples: npt.NDArray[Any]) -> float:
    """The duration of samples at 16 kHz, in seconds."""
    return samples.size / SAMPLE_RATE


def _flat(samples: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = np.asarray(samples)
    if array.dtype != np.int16 and not np.issubdtype(array.dtype, np.floating):
        raise AudioError(f"samples of dtype {array.dtype} cannot be sent: give float32 in [-1, 1] or int16")
    if array.size != max(array.shape, default=1) and array.size != 0:
        raise AudioError(f"samples of shape {array.shape} are not mono: give one channel, [N]")
    if array.dtype != np.int16 and not np.isfinite(array).all():
        raise AudioError("the samples hold values that are not finite numbers: they cannot be sent")
    return array.reshape(-1)
