"""Files that libsndfile reads."""

import re

import soundfile

from oasr_backend.audio.reading import Reading, Unreadable
from oasr_backend.audio.recording import Recording
from oasr_backend.audio.source import Source

# Frames read at a time, so that a file that expands without end is stopped early.
_BLOCK_FRAMES = 1 << 16
# What libsndfile logs of a header whose length is not the file's; the innermost chunk that holds samples counts.
_PROMISE = re.compile(r"^ *(data|SSND|Data Size|riff|Riff size) *: (\d+) \(should be (\d+)\)", re.MULTILINE)
# Lengths from here on stand for "unknown": writers to a pipe put in the largest that fits, or about half of it.
_UNKNOWN_LENGTH = 0x7FFF0000
# FLAC writers that do not know the length leave it out.
_UNKNOWN_FRAMES = 1 << 40


def read(data: bytes, recording: Recording) -> Reading:
    """Adds all that can be read to `recording`. Raises Unreadable, and AudioError for what is refused."""
    source = Source(data, recording.deadline)
    try:
        file = soundfile.SoundFile(source)
    except soundfile.LibsndfileError as error:
        raise Unreadable(_reason(error)) from error
    source.header_is_read()
    with file:
        # Of an MP3 the length is a guess.
        if file.frames < _UNKNOWN_FRAMES and file.format != "MP3":
            recording.expect(file.frames / file.samplerate)
        broken = False
        try:
            while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
                recording.add(block, file.samplerate)
        except soundfile.LibsndfileError:
            broken = True
        # A source that ran dry looks like one that has ended.
        recording.check()
        if not recording.sample_rate:
            recording.set_format(file.samplerate, file.channels)
        return Reading(file.format, _promised_seconds(file), broken)


def _promised_seconds(file: soundfile.SoundFile) -> float | None:
    """What the header says of the length; None where it says nothing."""
    frames = float(file.frames)
    for _, promised, there in _PROMISE.findall(file.extra_info):
        if int(promised) < _UNKNOWN_LENGTH and int(there):
            frames *= int(promised) / int(there)
            break
    return None if frames >= _UNKNOWN_FRAMES else frames / file.samplerate


def _reason(error: soundfile.LibsndfileError) -> str:
    return error.error_string.strip().rstrip(".")
