"""What the first bytes of a file say it is, and what its structure says of its length."""

import struct
from dataclasses import dataclass
from typing import Literal

# No writer puts so many before the samples.
_MOST_CHUNKS = 1000
_MOST_TAGS = 16

Reader = Literal["libsndfile", "libav"]


@dataclass(frozen=True)
class Container:
    """A file format: its name, FFmpeg's name for it, and who reads it, the better one first."""

    name: str
    libav: str
    readers: tuple[Reader, ...]


_WAV = Container("WAV", "wav", ("libsndfile", "libav"))
_FLAC = Container("FLAC", "flac", ("libsndfile", "libav"))
_OGG = Container("OGG", "ogg", ("libsndfile", "libav"))
_AIFF = Container("AIFF", "aiff", ("libsndfile", "libav"))
# libsndfile believes the length that the first frames suggest and loses what comes behind it: joined files, variable
# bit rates.
_MP3 = Container("MP3", "mp3", ("libav", "libsndfile"))
_MP4 = Container("MP4", "mov", ("libav",))
_MATROSKA = Container("WebM", "matroska", ("libav",))
_AAC = Container("AAC", "aac", ("libav",))
_AMR = Container("AMR", "amr", ("libav",))


def find_container(data: bytes) -> Container | None:
    """The format by its first bytes; None for what has none of ours."""
    tags = _id3_size(data)
    data = data[tags : tags + 32]
    head = data[:4]
    if head in (b"RIFF", b"RF64", b"RIFX") and data[8:12] == b"WAVE":
        return _WAV
    if head == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return _AIFF
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide"):
        return _MP4
    if data.startswith(b"#!AMR"):
        return _AMR
    known = {b"fLaC": _FLAC, b"OggS": _OGG, b"\x1aE\xdf\xa3": _MATROSKA}
    return known.get(head) or _by_frame_header(head) or (_MP3 if tags else None)


def _by_frame_header(head: bytes) -> Container | None:
    """MPEG audio has no magic number: eleven bits of ones, and fields that must be possible."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    if head[1] & 0xF6 == 0xF0:
        return _AAC
    version, layer, bit_rate, rate = head[1] >> 3 & 3, head[1] >> 1 & 3, head[2] >> 4, head[2] >> 2 & 3
    return None if version == 1 or layer == 0 or bit_rate == 15 or rate == 3 else _MP3


def _id3_size(data: bytes) -> int:
    """Bytes of the ID3 tags before the audio; a tag with nothing of ours behind it is an MP3's."""
    begin = 0
    for _ in range(_MOST_TAGS):
        if data[begin : begin + 3] != b"ID3" or len(data) < begin + 10:
            break
        size = 0
        for byte in data[begin + 6 : begin + 10]:
            size = size << 7 | byte & 0x7F
        begin += 10 + size
    return begin


def mended_wav(data: bytes) -> bytes:
    """A WAV whose writer could not go back to fill its length in, with the length that it has.

    Writers to a pipe leave 0 there, which libsndfile takes for no samples.
    """
    if data[:4] != b"RIFF" or len(data) < 12 or struct.unpack_from("<I", data, 4)[0] == len(data) - 8:
        return data
    begin = 12
    for _ in range(_MOST_CHUNKS):
        if begin + 8 > len(data):
            break
        name, size = struct.unpack_from("<4sI", data, begin)
        if name == b"data":
            rest = len(data) - begin - 8
            return data[: begin + 4] + struct.pack("<I", rest) + data[begin + 8 :] if size == 0 and rest else data
        begin += 8 + size + size % 2
    return data


def ogg_is_cut(data: bytes) -> bool:
    """Whether an Ogg file ends before its last page does, or before a page that says that it is the last."""
    begin = data.rfind(b"OggS")
    header = data[begin : begin + 27]
    if len(header) < 27:
        return True
    table = data[begin + 27 : begin + 27 + header[26]]
    end = begin + 27 + header[26] + sum(table)
    return len(table) < header[26] or end > len(data) or not header[5] & 4


def mp3_seconds(data: bytes) -> float | None:
    """What an MP3's Xing header promises; None where it has none."""
    tags = _id3_size(data)
    frame = data[tags : tags + 512]
    begin = max(frame.find(b"Xing"), frame.find(b"Info"))
    if len(frame) < 4 or begin < 0 or len(frame) < begin + 12:
        return None
    flags, frames = struct.unpack_from(">II", frame, begin + 4)
    version, rate = frame[1] >> 3 & 3, frame[2] >> 2 & 3
    if not flags & 1 or version == 1 or rate == 3:
        return None
    # MPEG 1 has frames of 1152 samples; MPEG 2 halves both, and MPEG 2.5 the rate once more.
    samples, divisor = (1152, 1) if version == 3 else (576, 2 if version == 2 else 4)
    return frames * samples * divisor / (44100, 48000, 32000)[rate]
