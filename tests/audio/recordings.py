"""Files of every format, made on the spot."""

import io
from functools import cache

import av
import numpy as np
import soundfile
import soxr

from oasr_backend.utils.paths import assets_dir

RATE = 16000


@cache
def speech() -> np.ndarray:
    """[n] float32 at 16 kHz: what the bundled clip digits.flac says; read only."""
    samples, rate = soundfile.read(assets_dir() / "clips" / "digits.flac", dtype="float32")
    assert rate == RATE
    samples.setflags(write=False)
    return samples


def telephone(samples: np.ndarray, rate: int = 8000) -> np.ndarray:
    """Audio at 16 kHz without what a lower rate cannot hold."""
    return soxr.resample(soxr.resample(samples, RATE, rate), rate, RATE)


def sndfile(
    samples: np.ndarray, rate: int = RATE, kind: str = "WAV", subtype: str | None = None, endian: str | None = None
) -> bytes:
    """[n] or [n, channels] as libsndfile writes it."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype, endian=endian)
    return buffer.getvalue()


def piped_flac(samples: np.ndarray) -> bytes:
    """A FLAC whose writer did not know its length."""
    data = bytearray(sndfile(samples, kind="FLAC", subtype="PCM_16"))
    # The low 36 bits of these eight bytes of STREAMINFO count the samples.
    data[18:26] = (int.from_bytes(data[18:26], "big") >> 36 << 36).to_bytes(8, "big")
    return bytes(data)


def muxed(
    samples: np.ndarray,
    kind: str,
    codec: str,
    rate: int = RATE,
    layout: str = "mono",
    tracks: int = 1,
    options: dict[str, str] | None = None,
) -> bytes:
    """[n] at 16 kHz as FFmpeg writes it, `rate` being the file's."""
    pcm = np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16).reshape(1, -1)
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=kind, options=options or {}) as file:
        streams = [file.add_stream(codec, rate=rate, layout=layout) for _ in range(tracks)]
        for stream in streams:
            frame = av.AudioFrame.from_ndarray(pcm, format="s16", layout="mono")
            frame.sample_rate, frame.pts = RATE, 0
            convert = av.AudioResampler(format=stream.codec_context.format.name, layout=layout, rate=rate)
            for piece in [*convert.resample(frame), *convert.resample(None)]:
                file.mux(stream.encode(piece))
            file.mux(stream.encode(None))
    return buffer.getvalue()


def silent_film() -> bytes:
    """An MP4 with pictures alone."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for _ in range(5):
            picture = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), dtype=np.uint8), format="rgb24")
            file.mux(stream.encode(picture))
        file.mux(stream.encode(None))
    return buffer.getvalue()


FORMATS = {
    "WAV, 8 bits": lambda samples: sndfile(samples, subtype="PCM_U8"),
    "WAV, 16 bits": lambda samples: sndfile(samples, subtype="PCM_16"),
    "WAV, 24 bits": lambda samples: sndfile(samples, subtype="PCM_24"),
    "WAV, 32 bits": lambda samples: sndfile(samples, subtype="PCM_32"),
    "WAV, float": lambda samples: sndfile(samples, subtype="FLOAT"),
    "WAV, double": lambda samples: sndfile(samples, subtype="DOUBLE"),
    "WAV, extensible": lambda samples: sndfile(samples, kind="WAVEX", subtype="PCM_16"),
    "WAV, big-endian": lambda samples: sndfile(samples, subtype="PCM_16", endian="BIG"),
    "WAV, mu-law": lambda samples: sndfile(samples, subtype="ULAW"),
    "WAV, A-law": lambda samples: sndfile(samples, subtype="ALAW"),
    "WAV, ADPCM": lambda samples: sndfile(samples, subtype="IMA_ADPCM"),
    "WAV, 64-bit lengths": lambda samples: sndfile(samples, kind="RF64", subtype="PCM_16"),
    "W64": lambda samples: sndfile(samples, kind="W64", subtype="PCM_16"),
    "AU": lambda samples: sndfile(samples, kind="AU", subtype="PCM_16"),
    "FLAC": lambda samples: sndfile(samples, kind="FLAC", subtype="PCM_16"),
    "FLAC, 24 bits": lambda samples: sndfile(samples, kind="FLAC", subtype="PCM_24"),
    "FLAC, from a pipe": piped_flac,
    "OGG, Vorbis": lambda samples: sndfile(samples, kind="OGG", subtype="VORBIS"),
    "OGG, Opus": lambda samples: sndfile(samples, kind="OGG", subtype="OPUS"),
    "OGG, FLAC": lambda samples: muxed(samples, "ogg", "flac"),
    "MP3": lambda samples: sndfile(samples, kind="MP3", subtype="MPEG_LAYER_III"),
    "MP3, no Xing header": lambda samples: muxed(samples, "mp3", "libmp3lame", options={"write_xing": "0"}),
    "AIFF": lambda samples: sndfile(samples, kind="AIFF", subtype="PCM_16"),
    "AIFF, float": lambda samples: sndfile(samples, kind="AIFF", subtype="FLOAT"),
    "M4A": lambda samples: muxed(samples, "ipod", "aac", 44100, "stereo"),
    "MP4": lambda samples: muxed(samples, "mp4", "aac"),
    "MP4, in fragments": lambda samples: muxed(
        samples, "mp4", "aac", options={"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    ),
    "AAC": lambda samples: muxed(samples, "adts", "aac"),
    "WebM, Opus": lambda samples: muxed(samples, "webm", "libopus", 48000),
    "WebM, live": lambda samples: muxed(samples, "webm", "libopus", 48000, options={"live": "1"}),
    "Matroska, AAC": lambda samples: muxed(samples, "matroska", "aac"),
    "AMR": lambda samples: muxed(samples, "amr", "libopencore_amrnb", 8000),
}
"""From samples [n] at 16 kHz to a file of theirs."""
