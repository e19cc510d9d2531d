"""Feature buffers of streams: samples in, windows out."""

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.features.fbank import Fbank
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.features.streaming import StreamingFeatures
from tests.golden.rules import chunked_frames

CPU = torch.device("cpu")
SPEC = FeatureSpec()
FBANK = Fbank(SPEC, CPU)


def buffers(slots: int = 2, capacity: int = 200) -> StreamingFeatures:
    return StreamingFeatures(FBANK, FBANK.spec, slots, capacity, CPU)


def noise(samples: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(samples) * 0.1).astype(np.float32)


def whole(samples: np.ndarray) -> np.ndarray:
    return FBANK(torch.from_numpy(samples)[None])[0].numpy()


def test_frames_per_chunk_of_one_stride_are_those_recorded() -> None:
    streams = buffers(1)
    samples = noise(10240 * 6)
    received = produced = 0
    for index, (frames, tail) in enumerate(chunked_frames()):
        streams.append([0], [samples[index * 10240 : (index + 1) * 10240]])
        assert streams.available(0) == frames
        streams.consume([0], frames)
        received += 10240
        produced += frames
        assert received - produced * SPEC.shift_samples == tail


def test_windows_overlap_by_what_a_stride_leaves() -> None:
    streams = buffers(1)
    streams.append([0], [noise(16400)])
    expected = whole(noise(16400))
    np.testing.assert_allclose(streams.window([0], 67)[0].numpy(), expected[:67], atol=1e-4)
    streams.consume([0], 64)
    assert streams.available(0) == len(expected) - 64
    np.testing.assert_allclose(streams.window([0], len(expected) - 64)[0].numpy(), expected[64:], atol=1e-4)


def test_consuming_more_than_there_is_empties_the_buffer() -> None:
    streams = buffers(1)
    streams.append([0], [noise(4000)])
    streams.consume([0], 1000)
    assert streams.available(0) == 0


def test_a_reset_slot_starts_anew() -> None:
    streams = buffers(1)
    streams.append([0], [noise(4321, seed=1)])
    streams.reset(0)
    assert streams.available(0) == 0
    streams.append([0], [noise(1600)])
    expected = whole(noise(1600))
    assert streams.available(0) == len(expected)
    np.testing.assert_allclose(streams.window([0], len(expected))[0].numpy(), expected, atol=1e-4)


def test_a_window_past_the_frames_that_are_there_is_finite() -> None:
    streams = buffers(1)
    streams.append([0], [noise(16000)])
    streams.consume([0], 90)
    assert np.isfinite(streams.window([0], 67).numpy()).all()


@settings(max_examples=40)
@given(st.data())
def test_any_order_of_samples_windows_and_resets(data: Any) -> None:
    """Against a list of all samples a stream ever had."""
    slots = 3
    streams = buffers(slots, capacity=400)
    samples = [np.zeros(0, dtype=np.float32) for _ in range(slots)]
    consumed = [0] * slots
    for turn in range(data.draw(st.integers(1, 12))):
        chosen = data.draw(st.lists(st.integers(0, slots - 1), min_size=1, max_size=slots, unique=True))
        match data.draw(st.sampled_from(["append", "append", "consume", "reset"])):
            case "append":
                waves = [noise(data.draw(st.integers(1, 3000)), seed=turn * 10 + slot) for slot in chosen]
                streams.append(chosen, waves)
                for slot, added in zip(chosen, waves, strict=True):
                    samples[slot] = np.concatenate((samples[slot], added))
            case "consume":
                count = data.draw(st.integers(1, 40))
                for slot in chosen:
                    consumed[slot] += min(count, streams.available(slot))
                streams.consume(chosen, count)
            case "reset":
                streams.reset(chosen[0])
                samples[chosen[0]], consumed[chosen[0]] = np.zeros(0, dtype=np.float32), 0
        for slot in range(slots):
            expected = whole(samples[slot])[consumed[slot] :]
            assert streams.available(slot) == len(expected)
            held = streams.window([slot], len(expected))[0].numpy()
            np.testing.assert_allclose(held, expected, atol=5e-3)
