"""Filter bank features against torchaudio's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.features.fbank import Fbank
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.features.streaming import StreamingFeatures
from tests.golden.cases import CPU, UTTERANCES, recorded_fbank, wave

ATOL, MEAN = 3e-2, 1e-3
# Batches of different heights take other kernels, and bins of low energy magnify rounding.
SAME = 5e-3


@pytest.fixture(scope="module")
def fbank() -> Fbank:
    return Fbank(FeatureSpec(), CPU)


def assert_recorded(features: np.ndarray, utterance: int) -> None:
    expected = recorded_fbank(utterance)
    assert features.shape == expected.shape
    difference = np.abs(features - expected)
    assert difference.max() <= ATOL
    assert difference.mean() < MEAN


def streamed(fbank: Fbank, waves: list[np.ndarray], chunk_sizes: list[list[int]]) -> list[np.ndarray]:
    """Features of streams fed side by side, read one frame at a time as soon as they are there."""
    streams = StreamingFeatures(fbank, fbank.spec, slots=len(waves), capacity=80, device=CPU)
    parts: list[list[np.ndarray]] = [[] for _ in waves]
    rest, turn = list(waves), 0
    while any(map(len, rest)):
        slots = [slot for slot in range(len(waves)) if len(rest[slot])]
        pieces = []
        for slot in slots:
            size = chunk_sizes[slot][turn % len(chunk_sizes[slot])]
            pieces.append(rest[slot][:size])
            rest[slot] = rest[slot][size:]
        streams.append(slots, pieces)
        for slot in slots:
            count = streams.available(slot)
            parts[slot].append(streams.window([slot], count)[0].numpy().copy())
            streams.consume([slot], count)
            assert streams.available(slot) == 0
        turn += 1
    return [np.concatenate(part) for part in parts]


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_offline_features_are_those_recorded(fbank: Fbank, utterance: int) -> None:
    assert_recorded(fbank(torch.from_numpy(wave(utterance))[None])[0].numpy(), utterance)


def test_batched_features_are_those_recorded(fbank: Fbank) -> None:
    waves = [wave(utterance) for utterance in UTTERANCES]
    padded = np.zeros((len(waves), max(map(len, waves))), dtype=np.float32)
    for row, samples in enumerate(waves):
        padded[row, : len(samples)] = samples
    features = fbank(torch.from_numpy(padded)).numpy()
    for utterance in UTTERANCES:
        assert_recorded(features[utterance, : len(recorded_fbank(utterance))], utterance)


@pytest.mark.parametrize("size", [1, 7, 160, 400, 3200, 10240])
def test_streamed_features_are_those_of_the_whole_utterance(fbank: Fbank, size: int) -> None:
    samples = wave(0)
    (features,) = streamed(fbank, [samples], [[size]])
    np.testing.assert_allclose(features, fbank(torch.from_numpy(samples)[None])[0].numpy(), atol=SAME)
    assert_recorded(features, 0)


def test_streams_side_by_side_keep_their_own_samples(fbank: Fbank) -> None:
    features = streamed(fbank, [wave(u) for u in UTTERANCES], [[3200], [977, 1], [10240, 160]])
    for utterance in UTTERANCES:
        assert_recorded(features[utterance], utterance)


@settings(max_examples=15)
@given(st.lists(st.integers(50, 10240), min_size=1, max_size=40))
def test_features_do_not_depend_on_how_the_audio_is_cut(sizes: list[int]) -> None:
    fbank = Fbank(FeatureSpec(), CPU)
    (features,) = streamed(fbank, [wave(1)], [sizes])
    np.testing.assert_allclose(features, fbank(torch.from_numpy(wave(1))[None])[0].numpy(), atol=SAME)
