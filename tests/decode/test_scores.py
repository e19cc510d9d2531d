"""What the head's logits become."""

import pytest
import torch

from oasr_backend.decode.scores import Hidden, LogProbs, TopK, log_sum_exp, score_frames


def logits(vocabulary: int, dtype: torch.dtype, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocabulary)
    return (torch.randn(64, vocabulary, generator=generator) * scale).to(dtype)


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("vocabulary", [2, 50, 5000])
def test_the_normaliser_is_as_exact_as_float32(vocabulary: int, scale: float) -> None:
    values = logits(vocabulary, torch.float32, scale)
    expected = values.double().logsumexp(-1, keepdim=True)
    torch.testing.assert_close(log_sum_exp(values).double(), expected, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("vocabulary", [2, 50, 5000])
def test_bfloat16_logits_lose_no_more_than_their_own_rounding(vocabulary: int, scale: float) -> None:
    values = logits(vocabulary, torch.bfloat16, scale)
    expected = values.double().logsumexp(-1, keepdim=True)
    found = log_sum_exp(values)
    assert found.dtype is torch.float32
    assert (found.double() - expected).abs().max() < 5e-3


def test_the_normaliser_holds_at_extremes() -> None:
    values = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]])
    torch.testing.assert_close(log_sum_exp(values), torch.tensor([[1e4], [-1e4 + 1.0986123]]))


def test_the_logits_are_left_as_they_were() -> None:
    values = logits(50, torch.float32, 3.0)
    before = values.clone()
    log_sum_exp(values)
    assert values.equal(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("k", [1, 4])
def test_the_best_tokens_and_the_blank(k: int, dtype: torch.dtype) -> None:
    values = logits(50, dtype, 3.0)[None]
    scores = score_frames(values, torch.zeros(1, 64, 8), TopK(k), blank_id=7)
    exact = values.float().log_softmax(-1)
    assert scores.tokens is not None and scores.log_probs is not None and scores.blank is not None
    assert scores.tokens.dtype is torch.int64 and scores.tokens.shape == (1, 64, k)
    assert scores.log_probs.dtype is scores.blank.dtype is torch.float32
    best = exact.topk(k)
    # Equal logits may come in either order.
    torch.testing.assert_close(exact.gather(-1, scores.tokens), best.values)
    torch.testing.assert_close(scores.log_probs, best.values, atol=5e-3, rtol=0)
    torch.testing.assert_close(scores.blank, exact[..., 7], atol=5e-3, rtol=0)
    assert (scores.log_probs <= 0).all()
    assert scores.full is None and scores.hidden is None


def test_only_what_was_asked_for() -> None:
    values, hidden = logits(50, torch.float32, 3.0)[None], torch.ones(1, 64, 8)
    full = score_frames(values, hidden, LogProbs(), blank_id=0)
    assert full.full is not None and full.tokens is None and full.hidden is None
    torch.testing.assert_close(full.full, values.log_softmax(-1))
    frames = score_frames(values, hidden, Hidden(), blank_id=0)
    assert frames.hidden is hidden and frames.full is None and frames.tokens is None
