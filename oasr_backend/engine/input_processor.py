"""Audio in: checked, cut to pieces, and held as features."""

import numpy as np
import torch
from torch import Tensor

from oasr_backend.audio.samples import as_float, check_range
from oasr_backend.engine.packing import PackedRow, pack
from oasr_backend.engine.request import Request
from oasr_backend.features.base import build_extractor
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.features.streaming import StreamingFeatures
from oasr_backend.models.geometry import FrontEndGeometry
from oasr_backend.utils.ranges import NO_RANGES, Ranges
from oasr_backend.utils.side_stream import SideStream
from oasr_backend.utils.staging import host_zeros, send


def as_waveform(audio: object) -> np.ndarray:
    """A copy of mono audio as [n] float32 in [-1, 1]; int16 is scaled.

    Accepts numpy arrays, torch tensors and sequences of numbers. Raises TypeError for what is no waveform and
    ValueError for more than one channel, for NaN or infinity, and for values that cannot be in [-1, 1].
    """
    if isinstance(audio, str | bytes) or hasattr(audio, "__fspath__"):
        raise TypeError("audio is a path or bytes; the engine takes waveforms, decode the file first")
    array = audio.detach().cpu().numpy() if isinstance(audio, Tensor) else np.asarray(audio)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise ValueError(f"audio has shape {array.shape}; expected one channel, [samples]; mix down first")
    if array.dtype == np.int16:
        return as_float(array)
    if not (np.issubdtype(array.dtype, np.floating) or array.size == 0):
        raise TypeError(f"audio holds {array.dtype}; expected float32 in [-1, 1] or int16")
    check_range(array)
    return array.astype(np.float32)


# A stream goes back into the silence before speech no further than this.
_MAX_LEAD_S = 1.0


class InputProcessor:
    """Features for both paths, from the checkpoint's specification."""

    def __init__(
        self,
        spec: FeatureSpec,
        geometry: FrontEndGeometry,
        slots: int,
        chunk_size: int,
        silence_pad: bool,
        device: torch.device,
        ranges: Ranges = NO_RANGES,
    ):
        self.spec = spec
        self._ranges = ranges
        self._geometry = geometry
        self._silence_pad = silence_pad
        self._device = device
        self._extractor = build_extractor(spec, device)
        self._side = SideStream(device)
        # A stream that is not ready holds less than a window, and takes less than a stride and the silence at its end.
        window = geometry.window(chunk_size)
        capacity = 2 * window + geometry.stride(chunk_size)
        # Rewinding a stream goes back over a chunk and a little silence before that.
        self._memory = geometry.stride(chunk_size) + round(_MAX_LEAD_S * 1000 / spec.frame_shift_ms)
        if slots:
            self.streams: StreamingFeatures | None = StreamingFeatures(
                self._extract, spec, slots, capacity, device, self._memory, ranges
            )
        else:
            self.streams = None

    def stride_samples(self, request: Request) -> int:
        """Samples by which one step moves a stream on."""
        return self._geometry.stride(request.chunk_size) * self.spec.shift_samples

    def feed(self, request: Request, wave: np.ndarray, is_last: bool) -> None:
        """Queues samples; long ones are cut so that one step never takes much more than it needs."""
        piece = self.stride_samples(request)
        for start in range(0, len(wave), piece):
            request.audio_chunks.append(wave[start : start + piece])
        request.samples_received += len(wave)
        if not is_last:
            return
        request.audio_final = True
        if self._silence_pad and request.samples_received:
            # In one piece: what a step would leave of it fills no window, and would cost the final text another step.
            silence = np.zeros(self._geometry.window(request.chunk_size) * self.spec.shift_samples, dtype=np.float32)
            request.audio_chunks.append(silence)

    def is_ready(self, request: Request) -> bool:
        """Whether a whole window waits, or the last part of one that no more audio will fill."""
        assert self.streams is not None and request.slot is not None
        frames = self.streams.available(request.slot)
        if frames >= self._geometry.window(request.chunk_size):
            return True
        # With the pad on, what is left short of a window is nothing but that silence.
        ended = request.audio_final and not request.has_pending_audio and not self._silence_pad
        return ended and frames >= self._geometry.min_frames

    def ingest(self, requests: list[Request]) -> None:
        """Extracts features for streams that lack a window: queued audio until one stride of new samples."""
        assert self.streams is not None
        slots, waves = [], []
        for request in requests:
            assert request.slot is not None
            stride = self.stride_samples(request)
            taken: list[np.ndarray] = []
            samples = 0
            while request.audio_chunks and samples < stride:
                taken.append(request.audio_chunks.popleft())
                samples += len(taken[-1])
            # Padding is no audio: it never counts as consumed.
            request.samples_consumed = min(request.samples_consumed + samples, request.samples_received)
            slots.append(request.slot)
            waves.append(taken[0] if len(taken) == 1 else np.concatenate(taken))
        self.streams.append(slots, waves)

    def remember(self, request: Request) -> None:
        """Keeps what `rewind` needs of a stream."""
        assert self.streams is not None and request.slot is not None
        self.streams.remember(request.slot, self._memory)

    def rewind(self, request: Request, frames: int) -> None:
        """Makes the last `frames` encoder frames of a stream come again. Raises ValueError when they are gone."""
        assert self.streams is not None and request.slot is not None
        self.streams.rewind(request.slot, frames * self._geometry.rate)

    def levels(self, windows: Tensor) -> list[list[float]]:
        """How loud the new encoder frames of `windows` [B, w, bins] are, in dB: each as its loudest feature frame."""
        rate = self._geometry.rate
        frames = self._geometry.frames_out(windows.shape[1])
        levels = self._extractor.levels(windows[:, : frames * rate])
        return levels.unflatten(1, (frames, rate)).amax(-1).tolist()

    def windows(self, requests: list[Request]) -> tuple[Tensor, list[int]]:
        """The next window of each stream, all of one chunk size: [B, w, bins] and the encoder frames each yields."""
        assert self.streams is not None
        slots = [request.slot for request in requests if request.slot is not None]
        chunk = requests[0].chunk_size
        window = self._geometry.window(chunk)
        frames = [self._geometry.frames_out(min(window, self.streams.available(slot))) for slot in slots]
        batch = self.streams.window(slots, window)
        self.streams.consume(slots, [count * self._geometry.rate for count in frames])
        return batch, frames

    def packed(self, waves: list[np.ndarray]) -> tuple[Tensor, PackedRow]:
        """Features of whole clips in one gapless row, [1, T, bins], and where each lies in it."""
        with self._ranges("pad+pin"):
            row = pack([len(wave) for wave in waves], self.spec, self._geometry)
            samples = host_zeros(1, row.samples, device=self._device)
            for wave, start, used in zip(waves, row.starts, row.used, strict=True):
                samples.numpy()[0, start : start + used] = wave[:used]
        return self._extract(samples), row

    def clips(self, waves: list[np.ndarray]) -> tuple[Tensor, list[int]]:
        """Features of whole clips: [B, T, bins] padded with zeros, and the encoder frames each yields."""
        frames = [self.spec.num_frames(len(wave)) for wave in waves]
        with self._ranges("pad+pin"):
            padded = host_zeros(len(waves), max(map(len, waves)), device=self._device)
            rows = padded.numpy()
            for row, wave in enumerate(waves):
                rows[row, : len(wave)] = wave
        return self._extract(padded), [self._geometry.frames_out(count) for count in frames]

    def _extract(self, samples: Tensor) -> Tensor:
        """Features [B, T, bins] of `samples` [B, n] on the host, beside whatever the device does."""

        def work() -> Tensor:
            with self._ranges("h2d"):
                sent = send(samples, self._device)
            with self._ranges("feature"):
                return self._extractor(sent)

        return self._side.run(work)
