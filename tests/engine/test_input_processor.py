"""Audio at the door."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oasr_backend.engine.input_processor import InputProcessor, as_waveform
from oasr_backend.engine.request import Request
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.geometry import FRONT_ENDS

FLOATS = np.array([0.0, 0.5, -1.0], dtype=np.float32)


@pytest.mark.parametrize(
    "audio",
    [
        FLOATS,
        FLOATS.astype(np.float64),
        FLOATS.astype(np.float16),
        FLOATS.tolist(),
        tuple(FLOATS.tolist()),
        FLOATS[None],
        FLOATS[:, None],
        torch.from_numpy(FLOATS),
        torch.from_numpy(FLOATS).requires_grad_(),
        torch.from_numpy(FLOATS)[None],
        np.array([0, 16384, -32768], dtype=np.int16),
        torch.tensor([0, 16384, -32768], dtype=torch.int16),
    ],
    ids=lambda audio: f"{type(audio).__name__}-{getattr(audio, 'dtype', '')}-{getattr(audio, 'ndim', '')}",
)
def test_mono_audio_of_any_kind(audio: Any) -> None:
    samples = as_waveform(audio)
    assert samples.dtype == np.float32 and samples.tolist() == FLOATS.tolist()


@pytest.mark.parametrize("audio", [[], np.zeros(0, dtype=np.int16), np.zeros((1, 0), dtype=np.float32)], ids=repr)
def test_no_samples_are_audio_too(audio: Any) -> None:
    assert as_waveform(audio).shape == (0,)


def test_the_caller_may_use_its_buffer_again() -> None:
    buffer = FLOATS.copy()
    samples = as_waveform(buffer)
    buffer[:] = 9
    assert samples.tolist() == FLOATS.tolist()


@pytest.mark.parametrize(
    ("audio", "error", "words"),
    [
        ("clip.wav", TypeError, "path or bytes"),
        (b"RIFF", TypeError, "path or bytes"),
        (Path("clip.wav"), TypeError, "path or bytes"),
        (np.array([1, 2], dtype=np.int32), TypeError, "int32"),
        (np.array([1, 2], dtype=np.uint8), TypeError, "uint8"),
        ([1, 2], TypeError, "int"),
        (np.array([1j]), TypeError, "complex"),
        (["a", "b"], TypeError, "expected float32"),
        (np.zeros((2, 100), dtype=np.float32), ValueError, r"\(2, 100\)"),
        (np.zeros((1, 1, 5), dtype=np.float32), ValueError, r"\(1, 1, 5\)"),
        (0.5, ValueError, "one channel"),
        (None, ValueError, "one channel"),
        ([0.0, float("nan")], ValueError, "NaN or infinity"),
        ([float("nan"), 0.0], ValueError, "NaN or infinity"),
        ([float("inf"), 0.0], ValueError, "NaN or infinity"),
        ([0.0, float("-inf")], ValueError, "NaN or infinity"),
        (np.array([1e38], dtype=np.float32), ValueError, r"\[-1, 1\]"),
        (np.array([-1e300]), ValueError, r"\[-1, 1\]"),
        (np.array([0.0, 12000.0], dtype=np.float32), ValueError, "int16"),
    ],
    ids=str,
)
def test_what_is_no_waveform_is_refused_with_the_reason(audio: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        as_waveform(audio)


def test_a_little_clipping_is_audio() -> None:
    assert as_waveform([1.5, -2.0]).tolist() == [1.5, -2.0]


def make(silence_pad: bool = False) -> InputProcessor:
    return InputProcessor(FeatureSpec(), FRONT_ENDS["conv2d"], 2, 16, silence_pad, torch.device("cpu"))


def stream(chunk: int = 16) -> Request:
    return Request("a", True, chunk_size=chunk, slot=0)


def test_small_chunks_are_taken_together_until_a_stride_is_full() -> None:
    inputs, request = make(), stream()
    for _ in range(100):
        inputs.feed(request, np.zeros(320, dtype=np.float32), False)
    inputs.ingest([request])
    assert request.samples_consumed == 10240
    assert len(request.audio_chunks) == 68


def test_a_long_chunk_is_taken_a_stride_at_a_time() -> None:
    inputs, request = make(), stream()
    inputs.feed(request, np.zeros(100_000, dtype=np.float32), True)
    steps = 0
    while request.has_pending_audio:
        before = request.samples_consumed
        inputs.ingest([request])
        assert 0 < request.samples_consumed - before < 2 * 10240
        while inputs.is_ready(request):
            inputs.windows([request])
        steps += 1
    assert request.samples_consumed == 100_000 and steps == 10


def test_padding_never_counts_as_audio() -> None:
    inputs, request = make(silence_pad=True), stream()
    inputs.feed(request, np.zeros(4000, dtype=np.float32), True)
    assert request.samples_received == 4000
    assert sum(map(len, request.audio_chunks)) == 4000 + 67 * 160
    while request.has_pending_audio:
        inputs.ingest([request])
    assert request.samples_consumed == 4000


def test_an_empty_stream_gets_no_padding() -> None:
    inputs, request = make(silence_pad=True), stream()
    inputs.feed(request, np.zeros(0, dtype=np.float32), True)
    assert request.audio_final and not request.has_pending_audio
    assert not inputs.is_ready(request)


@pytest.mark.parametrize(("frames", "ready"), [(6, False), (7, True), (66, True), (67, True)])
def test_the_last_window_may_be_short(frames: int, ready: bool) -> None:
    inputs, request = make(), stream()
    inputs.feed(request, np.zeros(400 + 160 * (frames - 1), dtype=np.float32), False)
    inputs.ingest([request])
    if request.has_pending_audio:
        inputs.ingest([request])
    assert inputs.is_ready(request) is (frames == 67)
    inputs.feed(request, np.zeros(0, dtype=np.float32), True)
    assert inputs.is_ready(request) is ready


def test_clips_are_padded_to_the_longest() -> None:
    features, frames = make().clips([np.zeros(n, dtype=np.float32) for n in (16000, 0, 399, 1400, 8000)])
    assert features.shape == (5, 98, 80)
    assert frames == [23, 0, 0, 1, 11]


def test_a_batch_of_nothing_has_no_frames() -> None:
    features, frames = make().clips([np.zeros(0, dtype=np.float32)] * 2)
    assert features.shape == (2, 0, 80) and frames == [0, 0]
