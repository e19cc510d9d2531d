"""Greedy decoding and text against WeNet's."""

import numpy as np
import pytest
import torch

from oasr_backend.decode.base import DecodeSetup
from oasr_backend.decode.greedy import GreedyStrategy
from oasr_backend.decode.scores import FrameScores, Needs
from tests.golden.cases import DEAD_HEAT, TIE, UTTERANCES, GoldenCase, recorded_fbank
from tests.streams import FeatureStreams


def greedy(case: GoldenCase, rows: list[np.ndarray]) -> list[list[int]]:
    """Tokens of a padded batch of log-probabilities; what lies past a row's length is another token's."""
    strategy = GreedyStrategy(DecodeSetup(case.checkpoint.model.blank_id, case.checkpoint.model.vocab_size))
    longest = max(map(len, rows))
    padded = np.full((len(rows), longest, rows[0].shape[1]), -9.0, dtype=np.float32)
    padded[..., 3] = 0.0
    for row, log_probs in enumerate(rows):
        padded[row, : len(log_probs)] = log_probs
    best = torch.from_numpy(padded).topk(1)
    sessions = [strategy.open() for _ in rows]
    strategy.advance(sessions, FrameScores(tokens=best.indices, log_probs=best.values), [len(row) for row in rows])
    return [list(strategy.best(session).tokens) for session in sessions]


def settled(own: np.ndarray, recorded: np.ndarray) -> np.ndarray:
    """Our log-probabilities, with those frames taken from the recording whose two best are as good as equal."""
    first, second = -np.sort(-recorded, axis=1)[:, :2].T
    return np.where((first - second > TIE)[:, None], own, recorded)


def recorded_single(case: GoldenCase, utterance: int) -> list[list[list[int]]]:
    """What WeNet made of the clip alone; beside it what it made of it in a batch, where a frame is a dead heat.

    Only the batch's log-probabilities are recorded then, and rounding decides.
    """
    alone = case.decoded["offline_single"][utterance]["ctc_greedy_search"]
    first, second = -np.sort(-case.recorded_offline(utterance), axis=1)[:, :2].T
    if (first - second).min() > DEAD_HEAT:
        return [alone]
    return [alone, [case.decoded["offline_batch"]["ctc_greedy_search"][utterance]]]


def recorded_streaming(case: GoldenCase, utterance: int) -> np.ndarray:
    """Log-probabilities at chunk 16 with 4 chunks of history.

    The first utterance is two chunks long, so that all history is the same thing.
    """
    left = -1 if utterance == 0 else 4
    return case.streaming[f"c16_l{left}_u{utterance}_logprobs"]


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_recorded_offline_log_probs(case: GoldenCase, utterance: int) -> None:
    assert greedy(case, [case.recorded_offline(utterance)]) in recorded_single(case, utterance)


def test_recorded_batch_of_log_probs(case: GoldenCase) -> None:
    rows = [case.recorded_in_batch(utterance) for utterance in UTTERANCES]
    assert greedy(case, rows) == case.decoded["offline_batch"]["ctc_greedy_search"]


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_recorded_streaming_log_probs(streamed: GoldenCase, utterance: int) -> None:
    expected = streamed.decoded["streaming_c16_l4"][utterance]["ctc_greedy_search"]
    assert greedy(streamed, [recorded_streaming(streamed, utterance)]) == expected


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_our_offline_log_probs(case: GoldenCase, utterance: int) -> None:
    features = torch.from_numpy(recorded_fbank(utterance))[None]
    with torch.inference_mode():
        hidden = case.model.encode_clips(features, torch.tensor([case.recorded_frames(utterance)]))
        own = case.model.score(hidden, Needs(log_probs=True)).full
    assert own is not None
    settled_own = settled(own[0].numpy(), case.recorded_offline(utterance))
    assert greedy(case, [settled_own]) in recorded_single(case, utterance)


def test_our_streaming_log_probs(streamed: GoldenCase) -> None:
    streams = FeatureStreams(streamed.model, chunk=16, left_chunks=4, streams=3)
    opened = [streams.open(recorded_fbank(utterance)) for utterance in UTTERANCES]
    streams.run(opened)
    for utterance, stream in zip(UTTERANCES, opened, strict=True):
        expected = streamed.decoded["streaming_c16_l4"][utterance]["ctc_greedy_search"]
        assert greedy(streamed, [settled(stream.log_probs, recorded_streaming(streamed, utterance))]) == expected


@pytest.mark.parametrize("utterance", UTTERANCES)
def test_text_differs_from_the_recorded_one_in_special_tokens_and_spaces_only(case: GoldenCase, utterance: int) -> None:
    (tokens,) = case.decoded["offline_single"][utterance]["ctc_greedy_search"]
    recorded = case.decoded["detokenized_greedy_offline_single"][utterance]
    # WeNet writes special tokens out, and for characters the mark of a space too.
    expected = recorded.replace("<unk>", "").replace("<sos/eos>", "").replace("▁", " ").strip()
    assert case.tokenizer.decode(tokens) == expected
