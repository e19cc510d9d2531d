"""Whole clips against WeNet's encoder and head."""

import numpy as np
import pytest
import torch

from oasr_backend.decode.scores import Needs
from tests.golden.cases import (
    CASES,
    CHUNKS,
    LEFT_CHUNKS,
    UTTERANCES,
    GoldenCase,
    assert_log_probs_equal,
    recorded_fbank,
)
from tests.streams import FeatureStreams

RECORDED_MASKED = [
    (name, chunk, left)
    for name in CASES
    if (GoldenCase(name).path / "chunk_masked.npz").is_file()
    for chunk, left in ((8, 2), (16, 4))
    if f"c{chunk}_l{left}_batch_ctc_logprobs" in GoldenCase(name).chunk_masked
]


@torch.inference_mode()
def encode(case: GoldenCase, utterances: list[int], chunk: int = -1, left: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Hidden frames and log-probabilities of a zero-padded batch of recorded features."""
    features = [torch.from_numpy(recorded_fbank(utterance)) for utterance in utterances]
    geometry = case.model.config.encoder.geometry
    lengths = torch.tensor([geometry.frames_out(len(part)) for part in features])
    padded = torch.nn.utils.rnn.pad_sequence(features, batch_first=True)
    hidden = case.model.encode_clips(padded, lengths, chunk, left)
    scores = case.model.score(hidden, Needs(log_probs=True))
    assert scores.full is not None
    return hidden.numpy(), scores.full.numpy()


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_a_single_clip(case: GoldenCase, utterance: int) -> None:
    hidden, log_probs = encode(case, [utterance])
    frames = case.recorded_frames(utterance)
    assert log_probs.shape == (1, frames, case.checkpoint.model.vocab_size)
    assert_log_probs_equal(log_probs[0], case.recorded_offline(utterance))
    if not case.sees_padding:
        assert_log_probs_equal(hidden[0], case.offline["encoder_out"][utterance, :frames])


def test_a_padded_batch(case: GoldenCase) -> None:
    _, log_probs = encode(case, list(UTTERANCES))
    for utterance in UTTERANCES:
        assert_log_probs_equal(
            log_probs[utterance, : case.recorded_frames(utterance)], case.recorded_offline(utterance)
        )


@pytest.mark.parametrize("recording", RECORDED_MASKED)
def test_a_padded_batch_seen_through_the_chunk_mask(recording: tuple[str, int, int]) -> None:
    name, chunk, left = recording
    case = GoldenCase(name)
    _, log_probs = encode(case, list(UTTERANCES), chunk, left)
    recorded = case.chunk_masked[f"c{chunk}_l{left}_batch_ctc_logprobs"]
    # Where WeNet's batch depends on its padding, only the longest clip is free of it.
    for utterance in UTTERANCES[-1:] if case.sees_padding else UTTERANCES:
        frames = case.recorded_frames(utterance)
        assert_log_probs_equal(log_probs[utterance, :frames], recorded[utterance, :frames])


@pytest.mark.parametrize("left", LEFT_CHUNKS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_the_chunk_mask_gives_what_streaming_gave(streamed: GoldenCase, chunk: int, left: int) -> None:
    _, log_probs = encode(streamed, [1], chunk, left)
    recorded = streamed.streaming[f"c{chunk}_l{left}_u1_logprobs"]
    if streamed.sees_padding:
        # A centred convolution sees past its chunk when masked and not when streamed.
        assert np.abs(log_probs[0] - recorded).max() > 1e-2
    else:
        assert_log_probs_equal(log_probs[0], recorded)


@pytest.mark.parametrize("left", LEFT_CHUNKS)
@pytest.mark.parametrize("chunk", CHUNKS)
def test_rotary_positions_stream_as_the_chunk_mask_says(chunk: int, left: int) -> None:
    """WeNet's own streaming of them raises, so the masked pass is the truth."""
    case = GoldenCase("u2_conformer_rope")
    _, log_probs = encode(case, [1], chunk, left)
    streams = FeatureStreams(case.model, chunk=chunk, left_chunks=left, streams=1)
    stream = streams.open(recorded_fbank(1))
    streams.run([stream])
    assert_log_probs_equal(stream.log_probs, log_probs[0])
