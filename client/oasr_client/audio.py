"""Audio on the client's side: any file to 16 kHz mono, samples to the wire format, clips to chunks."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client.errors import AudioError

SAMPLE_RATE = 16_000
"""Samples per second of everything that is sent."""

Samples = npt.NDArray[np.float32]
Pcm = npt.NDArray[np.int16]


def read(source: str | Path | bytes, sample_rate: int = SAMPLE_RATE) -> Samples:
    """Reads a file that libsndfile knows (WAV, FLAC, OGG, MP3, AIFF, ...).

    Args:
        source: a path, or the bytes of a file.
        sample_rate: samples per second of the result.
    Returns:
        float32 [N] in [-1, 1], mono (mean of the channels).
    Raises:
        AudioError: missing, empty, not audio, or with samples that are not finite.
    """
    import soundfile
    import soxr

    name = "the audio" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else read_bytes(source)
    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError, ValueError) as error:
        raise AudioError(
            f"cannot read {name} as audio: the format is unknown or damaged; convert it to WAV or FLAC"
        ) from error
    if samples.shape[0] == 0:
        raise AudioError(f"{name} holds no samples: nothing to transcribe")
    if not np.isfinite(samples).all():
        raise AudioError(f"{name} holds samples that are not finite numbers: convert it again from its source")
    mono = samples.mean(axis=1, dtype=np.float32)
    if rate != sample_rate:
        mono = soxr.resample(mono, rate, sample_rate)
    return np.ascontiguousarray(mono, dtype=np.float32)


def read_bytes(path: str | Path) -> bytes:
    """The bytes of a file.

    Raises:
        AudioError: the file is missing, empty or not readable.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise AudioError(f"no such file: {path}") from None
    except OSError as error:
        raise AudioError(f"cannot read {path}: {error.strerror or error}") from None
    if not data:
        raise AudioError(f"{path} is empty: nothing to transcribe")
    return data


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
