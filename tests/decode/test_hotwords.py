"""The automaton of hotwords against phrases counted by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.decode.base import DecodeSession, DecodeSetup
from oasr_backend.decode.hotwords import ROOT, BiasTables, HotwordGraph, build_graph
from oasr_backend.decode.prefix_beam import PrefixBeamOptions, PrefixBeamStrategy
from oasr_backend.decode.scores import FrameScores

Phrase = tuple[Sequence[int], float]
CPU = torch.device("cpu")
VOCABULARY = 8


def walk(graph: HotwordGraph, tokens: Sequence[int]) -> tuple[float, int]:
    """What a token sequence gains in all, and where it ends."""
    node, total = ROOT, 0.0
    for token in tokens:
        column = graph.alphabet.get(token, 0)
        total += graph.gained[node][column]
        node = graph.reached[node][column]
    return total, node


def gain(phrases: Sequence[Phrase], tokens: Sequence[int]) -> float:
    return walk(build_graph(phrases), tokens)[0]


def counted(phrases: Sequence[Phrase], tokens: Sequence[int]) -> float:
    """What phrases are worth that are complete anywhere, and the start of one with which the tokens end.

    What several phrases start with is worth the highest of their scores.
    """
    token: dict[tuple[int, ...], float] = {}
    complete: dict[tuple[int, ...], float] = {}
    for phrase, score in phrases:
        whole = tuple(phrase)
        complete[whole] = max(complete.get(whole, 0.0), len(whole) * score)
        for size in range(1, len(whole) + 1):
            token[whole[:size]] = max(token.get(whole[:size], 0.0), score)
    worth = {start: sum(token[start[:size]] for size in range(1, len(start) + 1)) for start in [(), *token]}
    complete.pop((), None)
    total = 0.0
    for end in range(1, len(tokens) + 1):
        total += sum(worth for phrase, worth in complete.items() if tuple(tokens[:end][-len(phrase) :]) == phrase)
    endings = (tuple(tokens[start:]) for start in range(len(tokens) + 1))
    return total + worth[next(ending for ending in endings if ending in worth)]


all_phrases = st.lists(
    st.tuples(st.lists(st.integers(1, 4), max_size=4), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=5
)
spelt_phrases = st.lists(
    st.tuples(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from([0.5, 3.0])), min_size=1, max_size=3
)
all_tokens = st.lists(st.integers(1, 6), max_size=14)


@given(all_phrases, all_tokens)
def test_any_token_sequence_gains_what_is_counted(phrases: list[Phrase], tokens: list[int]) -> None:
    assert gain(phrases, tokens) == pytest.approx(counted(phrases, tokens))


@given(all_phrases, all_tokens)
def test_what_is_held_is_what_leaving_takes_back(phrases: list[Phrase], tokens: list[int]) -> None:
    graph = build_graph(phrases)
    total, node = walk(graph, tokens)
    # No phrase holds the 7.
    assert walk(graph, [*tokens, 7]) == (pytest.approx(total - graph.held[node]), ROOT)
    assert graph.held[ROOT] == 0.0


PHRASE: Phrase = ([1, 2, 3], 3.0)


@pytest.mark.parametrize(
    ("tokens", "total"),
    [
        ([], 0),
        ([1], 3),
        ([1, 2], 6),
        ([1, 2, 3], 18),
        ([1, 2, 3, 7], 9),
        ([1, 2, 7], 0),
        ([1, 7, 2, 3], 0),
        ([1, 1, 2, 3, 7], 9),
        ([1, 2, 1, 2, 3, 7], 9),
        ([1, 2, 3, 1, 2, 3, 7], 18),
        ([2, 3], 0),
    ],
)
def test_a_completed_phrase_keeps_its_length_times_its_score_and_a_broken_one_nothing(
    tokens: list[int], total: float
) -> None:
    assert gain([PHRASE], tokens) == pytest.approx(total)


def test_each_phrase_has_its_own_score() -> None:
    phrases: list[Phrase] = [([1, 2], 3.0), ([3, 4], 0.5)]
    assert gain(phrases, [1, 2, 7]) == pytest.approx(6)
    assert gain(phrases, [3, 4, 7]) == pytest.approx(1)
    assert gain(phrases, [1, 2, 3, 4, 7]) == pytest.approx(7)


def test_a_phrase_that_ends_another_counts_with_it() -> None:
    phrases: list[Phrase] = [([1, 2, 3], 1.0), ([2, 3], 1.0), ([3], 1.0)]
    assert gain(phrases, [1, 2, 3, 7]) == pytest.approx(3 + 2 + 1)
    assert gain(phrases, [2, 3, 7]) == pytest.approx(2 + 1)
    assert gain(phrases, [3, 7]) == pytest.approx(1)


def test_a_phrase_that_starts_another_counts_before_it() -> None:
    phrases: list[Phrase] = [([1, 2], 1.0), ([1, 2, 3, 4], 1.0)]
    assert gain(phrases, [1, 2, 7]) == pytest.approx(2)
    assert gain(phrases, [1, 2, 3, 7]) == pytest.approx(2)
    assert gain(phrases, [1, 2, 3, 4, 7]) == pytest.approx(2 + 4)


def test_phrases_that_overlap_both_count() -> None:
    phrases: list[Phrase] = [([1, 2], 1.0), ([2, 3], 1.0)]
    assert gain(phrases, [1, 2, 3, 7]) == pytest.approx(4)
    assert gain([([1, 1], 1.0)], [1, 1, 1, 7]) == pytest.approx(4)


def test_a_broken_phrase_goes_on_in_the_one_that_its_end_starts() -> None:
    phrases: list[Phrase] = [([1, 2, 3], 1.0), ([2, 4], 1.0)]
    graph = build_graph(phrases)
    total, node = walk(graph, [1, 2, 4])
    # The 2 still counts, once.
    assert total == pytest.approx(2 + 2)
    assert graph.held[node] == pytest.approx(2)


def test_a_phrase_said_twice_in_the_list_counts_once() -> None:
    assert gain([PHRASE, PHRASE], [1, 2, 3, 7]) == pytest.approx(9)


def test_a_phrase_of_no_token_adds_nothing() -> None:
    assert gain([([], 3.0)], [1, 2, 7]) == 0
    assert gain([([], 3.0), PHRASE], [1, 2, 3, 7]) == pytest.approx(9)


def test_a_graph_of_phrases_without_tokens_adds_nothing_to_its_batch() -> None:
    tables = BiasTables([build_graph([([], 3.0)]), build_graph([PHRASE])], VOCABULARY, CPU)
    gained, reached = tables.follow(torch.tensor([[ROOT], [ROOT]]), torch.tensor([[1], [1]]))
    assert gained.flatten().tolist() == [0.0, 3.0]
    assert reached.flatten().tolist() == [ROOT, 1]


@given(st.lists(st.none() | spelt_phrases, min_size=1, max_size=4), st.lists(all_tokens, min_size=3, max_size=3))
def test_the_tables_of_a_batch_are_the_walks_of_its_streams(
    lists: list[list[Phrase] | None], prefixes: list[list[int]]
) -> None:
    graphs = [None if phrases is None else build_graph(phrases) for phrases in lists]
    tables = BiasTables(graphs, VOCABULARY, CPU)
    states = torch.tensor([[walk(graph, tokens)[1] if graph else ROOT for tokens in prefixes] for graph in graphs])
    tokens = torch.tensor([[1, 2, 3, 4, 7, row % VOCABULARY] for row in range(len(graphs))])
    for count in (len(graphs), 1):
        gained, reached = tables.first(count).follow(states[:count], tokens[:count])
        assert gained.shape == reached.shape == (count, 3, 6)
        assert gained.dtype is torch.float64
        for row, graph in enumerate(graphs[:count]):
            for place in range(3):
                for column, token in enumerate(tokens[row].tolist()):
                    node = int(states[row, place])
                    key = graph.alphabet.get(token, 0) if graph else 0
                    expected = (graph.gained[node][key], graph.reached[node][key]) if graph else (0.0, ROOT)
                    assert (float(gained[row, place, column]), int(reached[row, place, column])) == expected


def scored(rows: Sequence[np.ndarray], top_k: int) -> FrameScores:
    values = torch.from_numpy(np.stack(rows))
    best = values.topk(top_k)
    return FrameScores(best.indices, best.values, values[..., 0])


def random_log_probs(seed: int, frames: int = 12) -> np.ndarray:
    logits = torch.from_numpy(np.random.default_rng(seed).standard_normal((frames, VOCABULARY)))
    return logits.log_softmax(-1).float().numpy()


@given(st.integers(0, 2**32 - 1), spelt_phrases, st.integers(1, 12))
def test_a_stream_without_hotwords_is_untouched_by_those_beside_it(
    seed: int, phrases: list[Phrase], frames: int
) -> None:
    """To the bit."""
    options = PrefixBeamOptions(beam_size=4, token_top_k=6)
    strategy = PrefixBeamStrategy(DecodeSetup(0, VOCABULARY, options))
    scores = scored([random_log_probs(seed), random_log_probs(seed + 1)], 6)
    with_others, without = strategy.open(), strategy.open()
    strategy.advance([with_others, strategy.open(build_graph(phrases))], scores, [12, frames])
    strategy.advance([without, strategy.open()], scores, [12, frames])
    assert strategy.n_best(with_others, 4) == strategy.n_best(without, 4)


def test_a_phrase_is_found_that_would_be_lost_without_it() -> None:
    strategy = PrefixBeamStrategy(DecodeSetup(0, VOCABULARY, PrefixBeamOptions(beam_size=4, token_top_k=6)))
    log_probs = np.full((3, VOCABULARY), -9.0, dtype=np.float32)
    for frame, (first, second) in enumerate([(5, 1), (0, 6), (6, 2)]):
        log_probs[frame, first], log_probs[frame, second] = -0.1, -2.5
    sessions: list[DecodeSession] = [strategy.open(), strategy.open(build_graph([([1, 2], 3.0)]))]
    strategy.advance(sessions, scored([log_probs, log_probs], 6), [3, 3])
    plain, biased = (strategy.best(session) for session in sessions)
    assert plain.tokens == (5, 6) and biased.tokens == (1, 2)
    # Both of its tokens count while they are found, and the whole phrase once more.
    assert biased.score == pytest.approx(-2.5 - 0.1 - 2.5 + 12, abs=0.01)


def test_each_of_two_phrases_that_share_a_beginning_keeps_its_own_score() -> None:
    phrases = [((1, 2), 1.0), ((1, 3, 4), 3.0), ((1, 2), 0.5)]
    for order in (phrases, phrases[::-1]):
        # A foreign token leaves the phrase behind.
        assert gain(order, [1, 2, 9]) == pytest.approx(2.0)
        assert gain(order, [1, 3, 4, 9]) == pytest.approx(9.0)
        assert gain(order, [1, 9]) == gain(order, [1, 3, 9]) == pytest.approx(0.0)
