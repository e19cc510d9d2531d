"""What the caches hold after the last chunk, against WeNet's."""

import numpy as np
import pytest

from tests.golden.cases import GoldenCase, assert_log_probs_equal, recorded_fbank
from tests.streams import FeatureStream, FeatureStreams

CHUNK, LEFT = 8, 2
# WeNet keeps exactly the visible history.
KEPT = CHUNK * LEFT


@pytest.fixture(params=[16, 5], ids=["block16", "block5"])
def finished(streamed: GoldenCase, request: pytest.FixtureRequest) -> tuple[FeatureStreams, FeatureStream, int]:
    """The streams, the one that has ended, and the absolute frame at which its oldest page starts."""
    block = request.param
    streams = FeatureStreams(streamed.model, chunk=CHUNK, left_chunks=LEFT, streams=2, block_size_frames=block)
    stream = streams.open(recorded_fbank(1))
    streams.run([stream])
    last_offset = sum(stream.sizes[:-1])
    return streams, stream, max(0, last_offset - KEPT) // block * block


def sinusoids(positions: np.ndarray, dim: int) -> np.ndarray:
    angle = positions[:, None] * np.exp(np.arange(0, dim, 2) * -(np.log(10000.0) / dim))
    table = np.empty((len(positions), dim))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def test_keys_carry_their_positions_and_bias(
    streamed: GoldenCase, finished: tuple[FeatureStreams, FeatureStream, int]
) -> None:
    streams, stream, base = finished
    encoder = streamed.checkpoint.model.encoder
    end = stream.request.offset
    rows = slice(end - KEPT - base, end - base)
    recorded = streamed.streaming[f"c{CHUNK}_l{LEFT}_u1_att_cache"].astype(np.float64)
    for layer in range(encoder.layers):
        key, value = np.split(recorded[layer].transpose(1, 0, 2), 2, axis=-1)
        held_key, held_value, held_bias = (
            part.numpy()[rows] for part in streams.runner.runtime.attention.read(stream.slot, layer)
        )
        if encoder.attention.position == "rel_pos":
            place, bias = relative_terms(streamed, layer, key, np.arange(end - KEPT, end))
            assert_log_probs_equal(held_bias, bias)
            key = key + place
        else:
            assert held_bias.shape == (KEPT, 0)
        assert_log_probs_equal(held_key, key)
        assert_log_probs_equal(held_value, value)


def relative_terms(
    case: GoldenCase, layer: int, key: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W_pos·pe of the positions [n, heads, d], and (u·k + v·p) / √d [n, heads]."""
    encoder = case.checkpoint.model.encoder
    weight = {
        name: case.checkpoint.state[f"encoder.encoders.{layer}.self_attn.{name}"].double().numpy()
        for name in ("linear_pos.weight", "pos_bias_u", "pos_bias_v")
    }
    place = sinusoids(positions, encoder.dim) @ weight["linear_pos.weight"].T
    place = place.reshape(len(positions), encoder.attention.heads, encoder.attention.head_dim)
    bias = (weight["pos_bias_u"] * key + weight["pos_bias_v"] * place).sum(-1) / np.sqrt(encoder.attention.head_dim)
    return place, bias


def test_convolution_history_is_the_recorded_input_after_the_gate(
    streamed: GoldenCase, finished: tuple[FeatureStreams, FeatureStream, int]
) -> None:
    streams, stream, _ = finished
    convolution = streamed.checkpoint.model.encoder.convolution
    if convolution is None or not convolution.causal:
        assert streamed.model.fresh_convolution_history is None
        return
    recorded = streamed.streaming[f"c{CHUNK}_l{LEFT}_u1_cnn_cache"].astype(np.float64)
    for layer in range(streamed.checkpoint.model.encoder.layers):
        name = f"encoder.encoders.{layer}.conv_module.pointwise_conv1"
        weight = streamed.checkpoint.state[f"{name}.weight"].double().numpy()[..., 0]
        bias = streamed.checkpoint.state[f"{name}.bias"].double().numpy()
        value, gate = np.split(recorded[layer, 0].T @ weight.T + bias, 2, axis=-1)
        assert_log_probs_equal(streams.runner.runtime.convolution.read(stream.slot, layer), value / (1 + np.exp(-gate)))


def test_no_more_pages_are_held_than_the_history_needs(
    finished: tuple[FeatureStreams, FeatureStream, int],
) -> None:
    streams, stream, base = finished
    block = streams.runner.runtime.attention.policy.block_size
    assert streams.runner.runtime.attention.held_blocks(stream.slot) == -(-(stream.request.offset - base) // block)
