"""Bytes of an audio file to mono samples at the model's rate."""

import io
from dataclasses import dataclass

import numpy as np
import soundfile
import soxr

# Frames read at a time, so that a file that expands without end is stopped early.
_BLOCK_FRAMES = 1 << 16
# What the engine models take; WAV and PCM carry no rate of their own.
SAMPLE_RATE = 16000
# Above every recorder's: a header that says more only serves to blow a small file up.
_MAX_FILE_RATE = 384_000


@dataclass(frozen=True)
class AudioLimits:
    """What is refused: files of more than `max_audio_mib`, audio of more than `max_audio_seconds`."""

    max_audio_mib: int = 256
    max_audio_seconds: float = 7200.0


def decode_audio(data: bytes, limits: AudioLimits) -> np.ndarray:
    """[n] float32 in [-1, 1], channels mixed down, resampled to SAMPLE_RATE.

    Reads what libsndfile reads: WAV, FLAC, OGG, Opus, MP3, AIFF and more. Raises ValueError.
    """
    if not data:
        raise ValueError("AUDIO is empty; send the bytes of an audio file")
    if len(data) > limits.max_audio_mib << 20:
        raise ValueError(
            f"AUDIO has {len(data) / (1 << 20):.0f} MiB and max_audio_mib is {limits.max_audio_mib}; cut the file"
        )
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate = file.samplerate
            if rate > _MAX_FILE_RATE:
                raise ValueError(f"AUDIO is at {rate} Hz; send at most {_MAX_FILE_RATE} Hz")
            samples = _read(file, limits)
    except soundfile.LibsndfileError as error:
        raise ValueError(
            f"AUDIO is no readable audio file ({error.error_string.strip()}); send WAV, FLAC, OGG, Opus, MP3 or AIFF"
        ) from error
    if not np.isfinite(samples).all():
        raise ValueError("AUDIO holds NaN or infinity; write the file again from finite samples")
    if rate != SAMPLE_RATE and len(samples):
        samples = soxr.resample(samples, rate, SAMPLE_RATE)
    return samples.astype(np.float32, copy=False)


def _read(file: soundfile.SoundFile, limits: AudioLimits) -> np.ndarray:
    """Mono samples at the file's own rate; the header's length is not trusted."""
    blocks: list[np.ndarray] = []
    frames = 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
        frames += len(block)
        if frames > limits.max_audio_seconds * file.samplerate:
            raise ValueError(f"AUDIO lasts more than max_audio_seconds, {limits.max_audio_seconds:g}; cut or stream it")
        blocks.append(block.mean(axis=1))
    return np.concatenate(blocks) if blocks else np.zeros(0, dtype=np.float32)
