"""Files that FFmpeg's libraries read, through PyAV."""

from importlib.util import find_spec
from typing import Any

import numpy as np

from oasr_backend.audio.containers import Container, mp3_seconds
from oasr_backend.audio.reading import Reading, Unreadable
from oasr_backend.audio.recording import Recording
from oasr_backend.audio.source import Source
from oasr_backend.errors import AudioError

_BLOCK_SAMPLES = 1 << 16
# Enough to find the tracks of a file; the default may read all of it.
_PROBING = {"probesize": str(1 << 20), "analyzeduration": "5000000"}


def is_installed() -> bool:
    return find_spec("av") is not None


def read(data: bytes, container: Container, recording: Recording) -> Reading:
    """Adds all that can be read to `recording`. Raises Unreadable, and AudioError for what is refused.

    The format is given, never probed: some that FFmpeg knows are lists of other files to open.
    """
    import av

    source = Source(data, recording.deadline)
    try:
        # Tags are no audio, whatever they are written in.
        with av.open(source, format=container.libav, options=_PROBING, metadata_errors="replace") as file:
            source.header_is_read()
            stream = file.streams.best("audio")
            if stream is None and not file.streams.audio and len(file.streams):
                raise AudioError(f"AUDIO is {container.name} without an audio track; send a file with sound")
            if stream is None:
                raise Unreadable("nothing in it can be decoded")
            if stream.codec_context is None:
                raise Unreadable("its codec is not known")
            # One file has one thread: its processor time is counted, and others decode beside it.
            stream.codec_context.thread_count = 1
            promised = _promised_seconds(data, container, file, stream)
            if promised is not None:
                recording.expect(promised)
            is_broken = _decode(av, file, stream, recording)
            if not recording.sample_rate:
                recording.set_format(stream.codec_context.sample_rate, stream.codec_context.layout.nb_channels)
            return Reading(container.name, promised, is_broken, len(file.streams.audio))
    except (av.error.FFmpegError, EOFError) as error:
        raise Unreadable(getattr(error, "strerror", None) or "its data ends too early") from error


def _decode(av: Any, file: Any, stream: Any, recording: Recording) -> bool:
    """Whether parts of the file were damaged and had to be left out."""
    is_broken = False
    blocks = _Blocks(av, recording)
    packets = file.demux(stream)
    while True:
        try:
            packet = next(packets, None)
            if packet is None:
                break
            for frame in packet.decode():
                blocks.add(frame)
        except (av.error.FFmpegError, EOFError):
            is_broken = True
        # Packets without a single frame take time, too.
        recording.check()
    blocks.flush()
    # A source that ran dry looks like one that has ended.
    recording.check()
    if is_broken and not recording.sample_rate:
        raise Unreadable("no part of its sound can be decoded")
    return is_broken


class _Blocks:
    """Frames, of 20 ms or so and any sample format, to blocks that are worth the work on each.

    Format, rate and channels may change on the way.
    """

    def __init__(self, av: Any, recording: Recording):
        self._av = av
        self._recording = recording
        self._format: tuple[Any, ...] = ()
        self._converter: Any = None
        self._frames: list[np.ndarray] = []
        self._samples = 0

    def add(self, frame: Any) -> None:
        format = (frame.format.name, frame.layout.nb_channels, frame.sample_rate)
        if format != self._format:
            self.flush()
            self._format = format
            self._converter = None if frame.format.name == "fltp" else self._av.AudioResampler(format="fltp")
        for planes in [frame] if self._converter is None else self._converter.resample(frame):
            self._frames.append(planes.to_ndarray())
            self._samples += planes.samples
        if self._samples >= _BLOCK_SAMPLES:
            self.flush()

    def flush(self) -> None:
        """Hands on what there is."""
        if self._frames:
            block = np.concatenate(self._frames, axis=1)
            self._frames.clear()
            self._samples = 0
            self._recording.add(block.T, self._format[2])


def _promised_seconds(data: bytes, container: Container, file: Any, stream: Any) -> float | None:
    """What the header says of the length; None where there is nothing but FFmpeg's guess."""
    if container.libav == "mp3":
        return mp3_seconds(data)
    if container.libav in ("mov", "wav", "flac", "aiff") and stream.duration:
        return float(stream.duration * stream.time_base)
    # That of a film may be its pictures'.
    if container.libav == "matroska" and len(file.streams) == 1 and file.duration:
        return file.duration / 1_000_000
    return None
