"""One model, one answer: alone or batched, streamed or masked."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.decode.scores import Needs
from oasr_backend.errors import CheckpointError
from oasr_backend.models.base import build_model
from tests.golden.cases import CASES, CPU, GoldenCase, assert_log_probs_equal
from tests.streams import FeatureStream, FeatureStreams

LAYER_NORM, BATCH_NORM = GoldenCase(CASES[0]), GoldenCase(CASES[1])


def noise(frames: int, seed: int = 0) -> np.ndarray:
    """[frames, 80] about as loud as speech."""
    return (np.random.default_rng(seed).standard_normal((frames, 80)) * 3 + 10).astype(np.float32)


@torch.inference_mode()
def masked(case: GoldenCase, features: np.ndarray, chunk: int = -1, left: int = -1) -> np.ndarray:
    frames = case.model.config.encoder.geometry.frames_out(len(features))
    hidden = case.model.encode_clips(torch.from_numpy(features)[None], torch.tensor([frames]), chunk, left)
    scores = case.model.score(hidden, Needs(log_probs=True))
    assert scores.full is not None
    return scores.full[0].numpy()


@settings(max_examples=30)
@given(st.data())
def test_streams_that_come_and_go_equal_the_masked_pass(data: Any) -> None:
    """Any chunk, history and page size, any lengths and joins, slots used again and again."""
    case = data.draw(st.sampled_from([LAYER_NORM, BATCH_NORM]))
    chunk = data.draw(st.integers(1, 20), label="chunk")
    left = data.draw(st.integers(-1, 4), label="left")
    streams = FeatureStreams(
        case.model,
        chunk=chunk,
        left_chunks=left,
        streams=3,
        block_size_frames=data.draw(st.integers(1, 20), label="block"),
        max_blocks_per_seq=200,
        streaming_graph_pad_batch=data.draw(st.booleans(), label="pad"),
    )
    lengths = data.draw(st.lists(st.integers(0, 160), min_size=1, max_size=6), label="feature frames")
    waiting = [noise(length, seed) for seed, length in enumerate(lengths)]
    live: list[FeatureStream] = []
    while waiting or live:
        if waiting and len(live) < 3 and (not live or data.draw(st.booleans())):
            live.append(streams.open(waiting.pop()))
        for stream in [stream for stream in live if not streams.has_window(stream)]:
            live.remove(stream)
            streams.close(stream)
            if stream.chunks:
                expected = masked(case, stream.features, chunk, left)
                assert_log_probs_equal(stream.log_probs, expected)
            else:
                assert len(stream.features) < 7
        if live:
            streams.step(data.draw(st.lists(st.sampled_from(live), min_size=1, unique=True)))
    assert streams.runner.runtime.attention.pool.used_blocks == 0
    assert streams.runner.runtime.slots.free_slots == 3


def test_streams_of_two_chunk_sizes_live_side_by_side() -> None:
    streams = FeatureStreams(LAYER_NORM.model, chunk=16, left_chunks=2, streams=2)
    small, large = streams.open(noise(150, 1), chunk=4), streams.open(noise(150, 2))
    while streams.has_window(small) or streams.has_window(large):
        for stream in (small, large):
            if streams.has_window(stream):
                streams.step([stream])
    assert_log_probs_equal(small.log_probs, masked(LAYER_NORM, small.features, 4, 2))
    assert_log_probs_equal(large.log_probs, masked(LAYER_NORM, large.features, 16, 2))


def test_all_history_within_one_chunk_is_the_full_context() -> None:
    streams = FeatureStreams(LAYER_NORM.model, chunk=40, streams=1)
    stream = streams.open(noise(160))
    streams.run([stream])
    assert_log_probs_equal(stream.log_probs, masked(LAYER_NORM, stream.features))


@pytest.mark.parametrize("case", [LAYER_NORM, BATCH_NORM], ids=lambda case: case.name)
def test_batch_mates_and_padding_change_nothing(case: GoldenCase) -> None:
    clips = [noise(length, seed) for seed, length in enumerate((200, 7, 63, 6, 120))]
    padded = np.full((len(clips), 200, 80), 50.0, dtype=np.float32)
    for row, clip in enumerate(clips):
        padded[row, : len(clip)] = clip
    geometry = case.model.config.encoder.geometry
    lengths = [geometry.frames_out(len(clip)) for clip in clips]
    with torch.inference_mode():
        hidden = case.model.encode_clips(torch.from_numpy(padded), torch.tensor(lengths))
        scores = case.model.score(hidden, Needs(log_probs=True)).full
    assert scores is not None and scores.isfinite().all()
    for row, (clip, length) in enumerate(zip(clips, lengths, strict=True)):
        if length:
            assert_log_probs_equal(scores[row, :length], masked(case, clip))


@torch.inference_mode()
def test_the_head_gives_what_is_asked_for() -> None:
    model = LAYER_NORM.model
    hidden = model.encode_clips(torch.from_numpy(noise(60))[None], torch.tensor([14]))
    full = model.score(hidden, Needs(log_probs=True)).full
    assert full is not None
    torch.testing.assert_close(full.exp().sum(-1), torch.ones(full.shape[:2]))
    for k in (1, 5):
        best = model.score(hidden, Needs(top_k=k))
        assert best.tokens is not None and best.log_probs is not None and best.blank is not None
        assert best.full is None and best.hidden is None
        values, tokens = full.topk(k)
        assert best.tokens.equal(tokens)
        torch.testing.assert_close(best.log_probs, values)
        torch.testing.assert_close(best.blank, full[..., model.config.blank_id])
    frames = model.score(hidden, Needs(hidden=True)).hidden
    assert frames is not None
    torch.testing.assert_close(frames, hidden)


@torch.inference_mode()
def test_bfloat16_stays_near_float32() -> None:
    """Random weights are a hard case: log-probabilities spread over many units."""
    checkpoint = LAYER_NORM.checkpoint
    model = build_model(checkpoint, CPU, torch.bfloat16)
    features = noise(160)
    hidden = model.encode_clips(torch.from_numpy(features)[None], torch.tensor([39]))
    assert hidden.dtype is torch.bfloat16
    scores = model.score(hidden, Needs(log_probs=True)).full
    assert scores is not None and scores.dtype is torch.float32
    exact = masked(LAYER_NORM, features)
    assert np.abs(scores[0].numpy() - exact).mean() < 0.08
    assert (scores[0].argmax(-1).numpy() == exact.argmax(-1)).mean() > 0.9


def test_an_unknown_architecture_is_refused_by_name() -> None:
    model = dataclasses.replace(LAYER_NORM.checkpoint.model, architecture="branchformer")
    with pytest.raises(CheckpointError, match=r"'branchformer' is not supported .*conformer"):
        build_model(dataclasses.replace(LAYER_NORM.checkpoint, model=model), CPU, torch.float32)


def test_statistics_in_the_weights_win_over_the_file() -> None:
    """WeNet loads `encoder.global_cmvn` with the weights, over what the file gave."""
    checkpoint = LAYER_NORM.checkpoint
    other = dataclasses.replace(checkpoint, cmvn_mean=torch.zeros(80), cmvn_istd=torch.ones(80))
    with torch.inference_mode():
        model = build_model(other, CPU, torch.float32)
        features = torch.from_numpy(noise(60))[None]
        lengths = torch.tensor([14])
        torch.testing.assert_close(
            model.encode_clips(features, lengths), LAYER_NORM.model.encode_clips(features, lengths)
        )


def test_the_file_serves_where_the_weights_have_no_statistics() -> None:
    checkpoint = LAYER_NORM.checkpoint
    state = {name: value for name, value in checkpoint.state.items() if "global_cmvn" not in name}
    assert len(state) == len(checkpoint.state) - 2
    with torch.inference_mode():
        model = build_model(dataclasses.replace(checkpoint, state=state), CPU, torch.float32)
        features = torch.from_numpy(noise(60))[None]
        lengths = torch.tensor([14])
        torch.testing.assert_close(
            model.encode_clips(features, lengths),
            LAYER_NORM.model.encode_clips(features, lengths),
            atol=1e-4,
            rtol=1e-4,
        )
