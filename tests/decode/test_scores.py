"""What the head's logits become."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.scores import FrameScores, Needs, log_sum_exp, score_frames, top_k


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
    scores = score_frames(values, torch.zeros(1, 64, 8), Needs(top_k=k), blank_id=7)
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
    full = score_frames(values, hidden, Needs(log_probs=True), blank_id=0)
    assert full.full is not None and full.tokens is None and full.hidden is None
    torch.testing.assert_close(full.full, values.log_softmax(-1))
    frames = score_frames(values, hidden, Needs(hidden=True), blank_id=0)
    assert frames.hidden is hidden and frames.full is None and frames.tokens is None


@pytest.mark.parametrize("k", [2, 3, 10])
@pytest.mark.parametrize("over", [-65, -64, -1, 0, 1, 63, 64, 65])
def test_the_best_of_many_logits_are_the_best_of_all(k: int, over: int) -> None:
    """On both sides of the vocabulary from which only some blocks of 64 are looked at, with and without a rest."""
    values = logits(4 * k * 64 + over, torch.float32, 3.0)
    # All the best side by side, and all in the rest.
    values[0, 70 : 70 + k] += 50
    values[1, -k:] += 50
    found, index = top_k(values, k)
    expected = values.topk(k)
    assert found.equal(expected.values) and index.equal(expected.indices)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(12, 4000), st.sampled_from([1, 3, 1000]))
def test_the_best_logits_are_the_best_where_many_are_equal(seed: int, k: int, vocabulary: int, levels: int) -> None:
    """Any of equal ones may be chosen, each once."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, levels, (3, vocabulary), generator=generator).float()
    found, index = top_k(values, k)
    assert found.equal(values.topk(k).values)
    assert found.equal(values.gather(1, index))
    assert all(len(set(row)) == k for row in index.tolist())


def test_the_best_logits_in_bfloat16() -> None:
    values = logits(5000, torch.bfloat16, 3.0)
    found, index = top_k(values, 10)
    assert found.dtype is torch.bfloat16
    assert found.equal(values.topk(10).values) and found.equal(values.gather(1, index))


@pytest.mark.parametrize("vocabulary", [50, 5000])
def test_of_a_frame_that_is_gated_only_the_blank_is_known(vocabulary: int) -> None:
    values = logits(vocabulary, torch.float32, 3.0)[None]
    values[0, ::3, 7] += 30.0
    hidden = torch.zeros(1, 64, 8)
    gated = score_frames(values, hidden, Needs(top_k=4, gate=math.log(0.98)), blank_id=7)
    free = score_frames(values, hidden, Needs(top_k=4), blank_id=7)
    assert gated.tokens is not None and gated.log_probs is not None and gated.blank is not None
    assert free.tokens is not None and free.log_probs is not None and free.blank is not None
    is_gated = gated.blank >= math.log(0.98)
    assert is_gated[0, ::3].all() and 22 <= is_gated.sum() < 64
    assert gated.blank.equal(free.blank)
    assert gated.tokens[~is_gated].equal(free.tokens[~is_gated])
    assert gated.log_probs[~is_gated].equal(free.log_probs[~is_gated])
    assert (gated.tokens[is_gated][:, 0] == 7).all()
    assert gated.log_probs[is_gated][:, 0].equal(gated.blank[is_gated])
    assert (gated.log_probs[is_gated][:, 1:] == -math.inf).all()


@pytest.mark.parametrize("bump", [100.0, -100.0])
def test_all_frames_may_be_gated_or_none(bump: float) -> None:
    values = logits(50, torch.float32, 3.0)[None]
    values[..., 0] += bump
    scores = score_frames(values, torch.zeros(1, 64, 8), Needs(top_k=3, gate=math.log(0.98)), blank_id=0)
    assert scores.tokens is not None and scores.log_probs is not None
    assert scores.tokens.shape == scores.log_probs.shape == (1, 64, 3)
    assert ((scores.tokens[..., 0] == 0) == (bump > 0)).all()
    assert (scores.log_probs[..., 1:] == -math.inf).all() == (bump > 0)


GATE = math.log(0.98)


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ([Needs(top_k=1)], Needs(top_k=1, gate=GATE)),
        ([Needs(top_k=10, gate=GATE)], Needs(top_k=10, gate=GATE)),
        ([Needs(top_k=1), Needs(top_k=10, gate=GATE)], Needs(top_k=10, gate=GATE)),
        ([Needs(top_k=4, gate=math.log(0.9)), Needs(top_k=10, gate=GATE)], Needs(top_k=10, gate=GATE)),
        ([Needs(top_k=4), Needs(top_k=10, gate=GATE)], Needs(top_k=10)),
        ([Needs(top_k=1), Needs(log_probs=True)], Needs(top_k=1, gate=GATE, log_probs=True)),
        ([Needs(top_k=3, gate=GATE, hidden=True), Needs(top_k=1)], Needs(top_k=3, gate=GATE, hidden=True)),
    ],
)
def test_what_serves_all_is_the_most_that_anyone_needs(needs: list[Needs], expected: Needs) -> None:
    for order in (needs, needs[::-1]):
        assert Needs.union(order) == expected


def test_who_needs_the_best_token_alone_gets_it_whatever_others_pass_over() -> None:
    """A blank below one half is not the best token of every frame that another passes over for it."""
    values = torch.tensor([[[0.4, 0.5, 0.1], [0.6, 0.3, 0.1]]]).log()
    needs = Needs.union([Needs(top_k=1), Needs(top_k=2, gate=math.log(0.3))])
    scores = score_frames(values, torch.zeros(1, 2, 8), needs, blank_id=0)
    assert scores.tokens is not None
    assert scores.tokens[0, :, 0].tolist() == [1, 0]


def everything() -> FrameScores:
    values, hidden = logits(50, torch.float32, 3.0).view(4, 16, 50), torch.arange(4 * 16 * 8.0).view(4, 16, 8)
    return score_frames(values, hidden, Needs(top_k=3, log_probs=True, hidden=True), blank_id=0)


PARTS = ("tokens", "log_probs", "blank", "full", "hidden")


def test_rows_are_those_of_the_batch_in_the_order_asked_for() -> None:
    scores = everything()
    assert scores.rows([0, 1, 2, 3]) is scores
    some = scores.rows([3, 1])
    for name in PARTS:
        assert getattr(some, name).equal(getattr(scores, name)[[3, 1]])
    assert scores.rows([0, 1]).blank.shape == (2, 16)  # type: ignore[union-attr]
    assert FrameScores().rows([]) == FrameScores()


def test_a_part_is_one_row_from_a_frame_on() -> None:
    scores = everything()
    for first in (0, 5, 16):
        part = scores.part(2, first)
        for name in PARTS:
            assert getattr(part, name).equal(getattr(scores, name)[2:3, first:])
    assert FrameScores(blank=scores.blank).part(1, 3).tokens is None


def test_a_packed_row_is_spread_to_a_clip_a_row() -> None:
    packed = everything().rows([1])
    frames = [5, 0, 9, 2]
    spread = packed.unpacked(frames)
    for name in PARTS:
        whole, rows = getattr(packed, name)[0], getattr(spread, name)
        assert rows.shape[:2] == (4, 9) and rows.dtype is whole.dtype
        for row, (first, count) in enumerate(zip((0, 5, 5, 14), frames, strict=True)):
            assert rows[row, :count].equal(whole[first : first + count])
            assert not rows[row, count:].any()
    assert FrameScores(blank=packed.blank).unpacked(frames).full is None
