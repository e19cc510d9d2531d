"""The best path: collapsed, timed, and the same however it is cut."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.base import DecodeSession, DecodeSetup, Hypothesis, build_strategy
from oasr_backend.decode.greedy import GreedyStrategy
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import ConfigError

Frame = tuple[int, float]
BLANK = 0


def scores(rows: list[list[Frame]]) -> FrameScores:
    """Padded with a token that must not be read."""
    longest = max(map(len, rows))
    padded = [row + [(9, -0.1)] * (longest - len(row)) for row in rows]
    return FrameScores(
        tokens=torch.tensor([[token for token, _ in row] for row in padded]).view(len(rows), longest, 1),
        log_probs=torch.tensor([[value for _, value in row] for row in padded], dtype=torch.float32)[..., None],
    )


def decode(path: list[Frame], blank: int = BLANK) -> Hypothesis:
    strategy = GreedyStrategy(DecodeSetup(blank, 10))
    session = strategy.open()
    if path:
        strategy.advance([session], scores([path]), [len(path)])
    return strategy.best(session)


def collapsed(path: list[Frame]) -> list[tuple[int, int, float]]:
    """(token, peak frame, log-probability there) of every run of one token."""
    runs: list[tuple[int, int, float]] = []
    last = -1
    for frame, (token, value) in enumerate(path):
        if token != BLANK:
            if token != last:
                runs.append((token, frame, value))
            elif value > runs[-1][2]:
                runs[-1] = (token, frame, value)
        last = token
    return runs


frames = st.tuples(st.integers(0, 3), st.floats(-8, 0, width=32))


@given(st.lists(frames, max_size=40))
def test_runs_collapse_and_peaks_are_kept(path: list[Frame]) -> None:
    found = decode(path)
    runs = collapsed(path)
    assert found.tokens == tuple(token for token, _, _ in runs)
    assert found.frames == tuple(frame for _, frame, _ in runs)
    assert found.confidences == pytest.approx([math.exp(value) for *_, value in runs])
    assert found.score == pytest.approx(sum(value for _, value in path))


@given(st.lists(st.lists(frames, max_size=12), min_size=1, max_size=6))
def test_chunks_give_what_one_shot_gives(chunks: list[list[Frame]]) -> None:
    strategy = GreedyStrategy(DecodeSetup(BLANK, 10))
    session = strategy.open()
    for chunk in chunks:
        if chunk:
            strategy.advance([session], scores([chunk]), [len(chunk)])
    whole = decode([frame for chunk in chunks for frame in chunk])
    found = strategy.best(session)
    assert (found.tokens, found.frames) == (whole.tokens, whole.frames)
    assert found.confidences == whole.confidences
    assert found.score == pytest.approx(whole.score)
    assert session.frames_seen == sum(map(len, chunks))


@given(st.lists(st.lists(frames, max_size=12), min_size=1, max_size=5))
def test_rows_of_a_batch_do_not_touch(rows: list[list[Frame]]) -> None:
    strategy = GreedyStrategy(DecodeSetup(BLANK, 10))
    sessions: list[DecodeSession] = [strategy.open() for _ in rows]
    strategy.advance(sessions, scores([[*row, (9, -0.1)] for row in rows]), [len(row) for row in rows])
    for row, session in zip(rows, sessions, strict=True):
        assert strategy.best(session) == decode(row)


def test_a_blank_separates_equal_tokens() -> None:
    path = [(2, -0.1), (2, -0.2), (BLANK, -0.1), (2, -0.3)]
    assert decode(path).tokens == (2, 2)
    assert decode(path).frames == (0, 3)


def test_a_run_goes_on_in_the_next_chunk() -> None:
    strategy = GreedyStrategy(DecodeSetup(BLANK, 10))
    session = strategy.open()
    strategy.advance([session], scores([[(2, -0.5)]]), [1])
    strategy.advance([session], scores([[(2, -0.1), (2, -0.4)]]), [2])
    best = strategy.best(session)
    assert (best.tokens, best.frames) == ((2,), (1,))
    assert best.confidences == pytest.approx([math.exp(-0.1)])


def test_the_blank_may_have_any_id() -> None:
    assert decode([(0, -0.1), (3, -0.1), (0, -0.1)], blank=3).tokens == (0, 0)


def test_nothing_heard_is_the_empty_hypothesis() -> None:
    assert decode([]) == Hypothesis()
    assert decode([(BLANK, -0.25)] * 4) == Hypothesis(score=-1.0)


def test_there_is_one_hypothesis_whatever_is_asked_for() -> None:
    strategy = GreedyStrategy(DecodeSetup(BLANK, 10))
    session = strategy.open()
    assert strategy.n_best(session, 5) == [Hypothesis()]


def test_the_registry_builds_by_name() -> None:
    strategy = build_strategy("ctc_greedy", DecodeSetup(0, 10))
    assert strategy.needs == Needs(top_k=1)
    with pytest.raises(ConfigError, match=r"'beam' is not supported; choose one of: .*ctc_greedy"):
        build_strategy("beam", DecodeSetup(0, 10))
