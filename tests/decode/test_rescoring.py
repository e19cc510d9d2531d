"""Two passes: the first one's hypotheses in the order of both."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oasr_backend.decode.base import DecodeSession, DecodeSetup, Hypothesis, build_strategy, strategy_options
from oasr_backend.decode.hotwords import build_graph
from oasr_backend.decode.prefix_beam import PrefixBeamOptions, PrefixBeamStrategy
from oasr_backend.decode.rescoring import RescoringOptions, RescoringStrategy
from oasr_backend.decode.scores import FrameScores
from oasr_backend.errors import ConfigError

BEAM = 4
VOCABULARY = 6
DIM = 3


@dataclass
class FakeRescorer:
    """Scores by a rule of its own and remembers what it was asked."""

    reverse_weight: float = 0.25
    ctc_weight: float = 0.5
    scores: dict[tuple[int, ...], float] = field(default_factory=dict)
    asked: list[tuple[Tensor, list[tuple[int, ...]], float]] = field(default_factory=list)

    def rescore(self, frames: Tensor, hypotheses: Sequence[Sequence[int]], reverse_weight: float) -> Tensor:
        self.asked.append((frames.clone(), [tuple(tokens) for tokens in hypotheses], reverse_weight))
        # By default the longest hypothesis is the best.
        return torch.tensor([self.scores.get(tuple(tokens), len(tokens) - 20.0) for tokens in hypotheses])


def make(rescorer: FakeRescorer, **options: object) -> RescoringStrategy:
    chosen = RescoringOptions(beam_size=BEAM, blank_threshold=1.0, **options)  # type: ignore[arg-type]
    return RescoringStrategy(DecodeSetup(0, VOCABULARY, chosen, rescorer, seconds_per_frame=0.04))


def random_scores(seed: int, rows: int, frames: int) -> FrameScores:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, frames, VOCABULARY, generator=generator).log_softmax(-1)
    best = values.topk(BEAM)
    hidden = torch.randn(rows, frames, DIM, generator=generator)
    return FrameScores(best.indices, best.values, values[..., 0], hidden=hidden)


def first_pass(scores: FrameScores, row: int, frames: int) -> list[Hypothesis]:
    strategy = PrefixBeamStrategy(DecodeSetup(0, VOCABULARY, PrefixBeamOptions(BEAM, blank_threshold=1.0)))
    session = strategy.open()
    strategy.advance([session], scores.rows([row]), [frames])
    return strategy.n_best(session, BEAM)


def fed(strategy: RescoringStrategy, scores: FrameScores, frames: int) -> DecodeSession:
    session = strategy.open()
    strategy.advance([session], scores, [frames])
    return session


def test_the_total_is_the_second_pass_and_the_weighted_first() -> None:
    scores = random_scores(1, 1, 10)
    first = {one.tokens: one for one in first_pass(scores, 0, 10)}
    strategy = make(FakeRescorer())
    found = strategy.n_best(fed(strategy, scores, 10), BEAM)
    assert {one.tokens for one in found} == set(first)
    for one in found:
        before = first[one.tokens]
        assert one.score == pytest.approx(len(one.tokens) - 20 + 0.5 * before.score)
        # Times and confidences are those of the first pass.
        assert (one.frames, one.confidences) == (before.frames, before.confidences)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_a_first_pass_of_no_weight_decides_nothing() -> None:
    scores = random_scores(2, 1, 10)
    first = first_pass(scores, 0, 10)
    worth = {one.tokens: float(place) for place, one in enumerate(first)}
    strategy = make(FakeRescorer(scores=worth), ctc_weight=0.0)
    found = strategy.n_best(fed(strategy, scores, 10), BEAM)
    assert [one.tokens for one in found] == [one.tokens for one in reversed(first)]
    assert [one.score for one in found] == [3.0, 2.0, 1.0, 0.0]


def test_a_second_pass_that_finds_all_equal_leaves_the_first_ones_order() -> None:
    """With any weight; without one, too, because of equal scores the first pass' better one wins."""
    scores = random_scores(3, 1, 10)
    first = first_pass(scores, 0, 10)
    for weight in (0.0, 1.0):
        strategy = make(FakeRescorer(scores=dict.fromkeys((one.tokens for one in first), -1.0)), ctc_weight=weight)
        found = strategy.n_best(fed(strategy, scores, 10), BEAM)
        assert [one.tokens for one in found] == [one.tokens for one in first]
        expected = [-1.0 + weight * one.score for one in first]
        assert [one.score for one in found] == pytest.approx(expected)


@pytest.mark.parametrize(("given_weight", "asked"), [(None, 0.25), (0.0, 0.0), (0.75, 0.75), (1.0, 1.0)])
def test_the_reverse_weight_is_the_checkpoints_unless_it_is_given(given_weight: float | None, asked: float) -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer, reverse_weight=given_weight)
    strategy.n_best(fed(strategy, random_scores(4, 1, 6), 6), 1)
    assert [weight for *_, weight in rescorer.asked] == [asked]


def test_the_second_pass_sees_all_hypotheses_and_all_frames_once() -> None:
    """However few are asked for, and however often."""
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    scores = random_scores(5, 1, 9)
    session = strategy.open()
    for start in range(0, 9, 2):
        part = scores.part(0, start)
        strategy.advance([session], part, [min(2, 9 - start)])
    found = [strategy.n_best(session, count) for count in (1, BEAM, 1)]
    ((frames, hypotheses, _),) = rescorer.asked
    assert scores.hidden is not None
    assert frames.equal(scores.hidden)
    assert hypotheses == [one.tokens for one in first_pass(scores, 0, 9)]
    assert found[0] == found[2] == found[1][:1]


def test_partial_results_are_the_first_pass() -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    scores = random_scores(6, 1, 10)
    session = strategy.open()
    for frame in range(10):
        strategy.advance([session], scores.part(0, frame), [1])
        assert strategy.best(session) == first_pass(scores, 0, frame + 1)[0]
    assert rescorer.asked == []


def test_what_comes_after_a_final_result_counts_in_the_next() -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    scores = random_scores(7, 1, 10)
    session = fed(strategy, scores, 6)
    strategy.n_best(session, 1)
    strategy.advance([session], scores.part(0, 6), [4])
    found = strategy.n_best(session, BEAM)
    assert {one.tokens for one in found} == {one.tokens for one in first_pass(scores, 0, 10)}
    assert [frames.shape[1] for frames, *_ in rescorer.asked] == [6, 10]


def test_an_empty_hypothesis_is_rescored_like_any_other() -> None:
    blank = torch.tensor([[0.9, 0.1, 0.0, 0.0, 0.0, 0.0]] * 3)[None].clamp_min(1e-6).log()
    best = blank.topk(BEAM)
    scores = FrameScores(best.indices, best.values, blank[..., 0], hidden=torch.ones(1, 3, DIM))
    rescorer = FakeRescorer(scores={(): 5.0, (1,): -5.0})
    strategy = make(rescorer)
    found = strategy.n_best(fed(strategy, scores, 3), BEAM)
    assert () in rescorer.asked[0][1] and (1,) in rescorer.asked[0][1]
    assert found[0].tokens == () and found[0].score == pytest.approx(5 + 0.5 * 3 * np.log(0.9), abs=1e-5)


def test_nothing_heard_is_the_empty_hypothesis_and_asks_nobody() -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    session = strategy.open()
    assert strategy.best(session) == Hypothesis()
    assert strategy.n_best(session, BEAM) == [Hypothesis()]
    strategy.advance([session], random_scores(1, 1, 3), [0])
    assert strategy.n_best(session, BEAM) == [Hypothesis()]
    assert rescorer.asked == [] and strategy.warnings(session) == ()


def test_a_segment_that_is_too_long_keeps_the_first_pass_and_says_so() -> None:
    """25 frames are the second that is kept; with one more nothing is kept any longer."""
    scores = random_scores(8, 1, 30)
    for frames in (25, 26):
        rescorer = FakeRescorer()
        strategy = make(rescorer, max_rescored_seconds=1.0)
        session = strategy.open()
        for start in range(0, frames, 5):
            strategy.advance([session], scores.part(0, start), [min(5, frames - start)])
        found = strategy.n_best(session, BEAM)
        if frames == 25:
            assert len(rescorer.asked) == 1 and strategy.warnings(session) == ()
        else:
            assert found == first_pass(scores, 0, frames)
            assert rescorer.asked == [] and session.frames == []
            (warning,) = strategy.warnings(session)
            assert warning == "a segment of more than 1 s was not rescored; its text is the first pass'"


def test_the_frames_are_kept_and_not_the_batch_they_came_in() -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    scores = random_scores(9, 3, 5)
    session = strategy.open()
    strategy.advance([strategy.open(), session, strategy.open()], scores, [5, 4, 5])
    assert scores.hidden is not None
    kept = scores.hidden[1, :4].clone()
    scores.hidden.zero_()
    strategy.n_best(session, 1)
    ((frames, *_),) = rescorer.asked
    assert frames[0].equal(kept)
    assert session.frames[0].untyped_storage().nbytes() == 4 * DIM * 4


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 2**32 - 1))
def test_streams_of_a_call_do_not_touch(frames: list[int], seed: int) -> None:
    rescorer = FakeRescorer()
    strategy = make(rescorer)
    scores = random_scores(seed, len(frames), 6)
    sessions: list[DecodeSession] = [strategy.open() for _ in frames]
    strategy.advance(sessions, scores, frames)
    for row, (session, count) in enumerate(zip(sessions, frames, strict=True)):
        alone = strategy.open()
        strategy.advance([alone], scores.rows([row]), [count])
        found, expected = strategy.n_best(session, BEAM), strategy.n_best(alone, BEAM)
        assert [(one.tokens, one.frames) for one in found] == [(one.tokens, one.frames) for one in expected]
        assert [one.score for one in found] == pytest.approx([one.score for one in expected])
        assert session.frames_seen == count


def test_hotwords_count_in_the_first_pass() -> None:
    scores = random_scores(10, 1, 8)
    strategy = make(FakeRescorer(), ctc_weight=1.0)
    session = strategy.open(build_graph([([1, 2, 3], 4.0)]))
    strategy.advance([session], scores, [8])
    assert (1, 2, 3) in [one.tokens[index : index + 3] for one in strategy.n_best(session, 1) for index in range(8)]


def test_a_slot_goes_back_with_its_session() -> None:
    strategy = make(FakeRescorer())
    scores = random_scores(11, 1, 6)
    expected = strategy.n_best(fed(strategy, scores, 6), BEAM)
    for _ in range(30):
        session = strategy.open()
        assert strategy.n_best(session, BEAM) == [Hypothesis()]
        strategy.advance([session], scores, [6])
        assert strategy.n_best(session, BEAM) == expected
        strategy.close(session)


# options


def test_the_registry_builds_by_name() -> None:
    setup = DecodeSetup(0, 50, strategy_options("attention_rescoring", {}), FakeRescorer())
    strategy = build_strategy("attention_rescoring", setup)
    assert strategy.needs.hidden and strategy.needs.top_k == 10
    assert (strategy.max_n_best, strategy.biases, strategy.times_tokens) == (10, True, True)


def test_a_model_without_a_decoder_is_refused() -> None:
    setup = DecodeSetup(0, 50, strategy_options("attention_rescoring", {}))
    with pytest.raises(ConfigError, match="'attention_rescoring' needs a checkpoint with an attention decoder"):
        build_strategy("attention_rescoring", setup)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ctc_weight": -0.1}, r"ctc_weight is -0\.1; it must be 0 or more"),
        ({"ctc_weight": float("nan")}, "ctc_weight is nan"),
        ({"ctc_weight": float("inf")}, "ctc_weight is inf"),
        ({"ctc_weight": "0.5"}, r"ctc_weight is '0\.5'"),
        ({"reverse_weight": 1.1}, r"reverse_weight is 1\.1; it must be from 0 to 1"),
        ({"reverse_weight": "0.3"}, r"reverse_weight is '0\.3'"),
        ({"max_rescored_seconds": 0}, "max_rescored_seconds is 0; it must be above 0"),
        ({"max_rescored_seconds": "60"}, "max_rescored_seconds is '60'"),
        ({"max_rescored_seconds": float("inf")}, "max_rescored_seconds is inf"),
        ({"beam_size": 0}, "beam_size is 0"),
        ({"nbest": 4}, "decode_options has nbest; attention_rescoring knows .*ctc_weight"),
    ],
)
def test_an_impossible_option_is_refused_by_name(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        strategy_options("attention_rescoring", options)
