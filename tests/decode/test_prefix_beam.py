"""The beam search of all streams at once against a plain one, prefix by prefix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.decode import prefix_beam
from oasr_backend.decode.base import DecodeSession, DecodeSetup, Hypothesis, build_strategy, strategy_options
from oasr_backend.decode.hotwords import HotwordGraph, build_graph
from oasr_backend.decode.prefix_beam import PrefixBeamOptions, PrefixBeamStrategy
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.errors import ConfigError

BLANK = 0
NONE = -math.inf

# the plain search


@dataclass
class Ending:
    """All alignments of a prefix that end in one way: their probability, and the best of them with its peaks."""

    total: float = NONE
    best: float = NONE
    peaks: tuple[tuple[int, float], ...] = ()

    def add(self, total: float, best: float, peaks: tuple[tuple[int, float], ...]) -> None:
        self.total = float(np.logaddexp(self.total, total))
        if best > self.best:
            self.best, self.peaks = best, peaks


@dataclass
class Entry:
    """A prefix whose alignments end in blank, or in its last token."""

    blank: Ending
    token: Ending

    @classmethod
    def none(cls) -> "Entry":
        return cls(Ending(), Ending())

    @property
    def total(self) -> float:
        return float(np.logaddexp(self.blank.total, self.token.total))

    @property
    def better(self) -> Ending:
        return self.token if self.token.best > self.blank.best else self.blank


def plain_search(
    log_probs: np.ndarray,
    options: PrefixBeamOptions,
    blank: int = BLANK,
    phrases: Sequence[tuple[Sequence[int], float]] = (),
) -> list[Hypothesis]:
    """All hypotheses that are left at the end, best first."""
    graph = build_graph(phrases)
    top_k = min(options.token_top_k or options.beam_size, log_probs.shape[1])
    threshold = np.float32(math.log(options.blank_threshold))
    prefixes = {(): Entry(Ending(0.0, 0.0), Ending())}
    passed_over = False
    for frame, row in enumerate(log_probs):
        if options.blank_threshold < 1 and row[blank] >= threshold:
            passed_over = True
            continue
        if passed_over:
            prefixes = {
                prefix: Entry(Ending(one.total, one.better.best, one.better.peaks), Ending())
                for prefix, one in prefixes.items()
            }
        passed_over = False
        after: dict[tuple[int, ...], Entry] = {}
        for prefix, one in prefixes.items():
            for token in np.argsort(-row, kind="stable")[:top_k].tolist():
                value = float(row[token])
                if token == blank:
                    stays = after.setdefault(prefix, Entry.none())
                    stays.blank.add(one.total + value, one.better.best + value, one.better.peaks)
                    continue
                repeats = prefix[-1:] == (token,)
                total, source = (one.blank.total, one.blank) if repeats else (one.total, one.better)
                grows = after.setdefault((*prefix, token), Entry.none())
                grows.token.add(total + value, source.best + value, (*source.peaks, (frame, value)))
                if repeats and one.token.peaks:
                    peak = max(one.token.peaks[-1], (frame, value), key=lambda peak: peak[1])
                    stays = after.setdefault(prefix, Entry.none())
                    stays.token.add(one.token.total + value, one.token.best + value, (*one.token.peaks[:-1], peak))
        ranked = sorted(after.items(), key=lambda item: -item[1].total - gained(graph, item[0]))
        prefixes = {prefix: one for prefix, one in ranked[: options.beam_size] if one.total > NONE}
    ranked = sorted(prefixes.items(), key=lambda item: -item[1].total - gained(graph, item[0]))
    return [
        Hypothesis(
            prefix,
            tuple(frame for frame, _ in one.better.peaks),
            tuple(math.exp(value) for _, value in one.better.peaks),
            one.total + gained(graph, prefix),
        )
        for prefix, one in ranked
    ]


def gained(graph: HotwordGraph, tokens: Sequence[int]) -> float:
    """What hotwords add to a token sequence."""
    node, total = 0, 0.0
    for token in tokens:
        column = graph.alphabet.get(token, 0)
        total += graph.gained[node][column]
        node = graph.reached[node][column]
    return total


# the search under test


def make(options: PrefixBeamOptions, vocabulary: int, blank: int = BLANK) -> PrefixBeamStrategy:
    return PrefixBeamStrategy(DecodeSetup(blank, vocabulary, options))


def scored(strategy: PrefixBeamStrategy, rows: Sequence[np.ndarray], blank: int = BLANK) -> FrameScores:
    """What the model's head gives for log-probabilities of several streams, padded with what must not be read."""
    padded = np.full((len(rows), max(map(len, rows)), rows[0].shape[1]), -0.5, dtype=np.float32)
    for row, log_probs in enumerate(rows):
        padded[row, : len(log_probs)] = log_probs
    values = torch.from_numpy(padded)
    best, of_blank = values.topk(strategy.needs.top_k), values[..., blank]
    tokens, log_probs = best.indices, best.values
    gated = (of_blank >= strategy.needs.gate)[..., None]
    first = torch.arange(strategy.needs.top_k) == 0
    # Of these frames nothing but the blank is known.
    tokens = tokens.where(~gated, torch.tensor(blank))
    log_probs = log_probs.where(~gated, torch.where(first, of_blank[..., None], NONE))
    return FrameScores(tokens, log_probs, of_blank)


def feed(strategy: PrefixBeamStrategy, session: DecodeSession, log_probs: np.ndarray, blank: int = BLANK) -> None:
    if len(log_probs):
        strategy.advance([session], scored(strategy, [log_probs], blank), [len(log_probs)])


def search(
    log_probs: np.ndarray,
    options: PrefixBeamOptions,
    blank: int = BLANK,
    phrases: Sequence[tuple[Sequence[int], float]] = (),
) -> list[Hypothesis]:
    strategy = make(options, log_probs.shape[1], blank)
    session = strategy.open(build_graph(phrases) if phrases else None)
    feed(strategy, session, log_probs, blank)
    return strategy.n_best(session, 100)


def assert_equal(own: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(one.tokens, one.frames) for one in own] == [(one.tokens, one.frames) for one in expected]
    np.testing.assert_allclose([one.score for one in own], [one.score for one in expected], atol=1e-9, rtol=0)
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one.confidences, other.confidences, atol=1e-12)


def random_log_probs(seed: int, frames: int, vocabulary: int, scale: float = 3.0, blank: int = BLANK) -> np.ndarray:
    """[frames, vocabulary] float32, without ties; a third of the frames is as good as blank."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((frames, vocabulary)) * scale
    logits[:, blank] += np.where(rng.random(frames) < 0.35, 9.0, 0.0)
    return torch.from_numpy(logits).log_softmax(-1).float().numpy()


@st.composite
def matrices(draw: st.DrawFn, max_frames: int = 12, blank: int = BLANK) -> np.ndarray:
    frames, vocabulary = draw(st.integers(0, max_frames)), draw(st.integers(4, 8))
    scale = draw(st.sampled_from([0.3, 1.0, 3.0]))
    return random_log_probs(draw(st.integers(0, 2**32 - 1)), frames, vocabulary, scale, blank)


all_options = st.builds(
    PrefixBeamOptions,
    beam_size=st.integers(1, 5),
    token_top_k=st.none() | st.integers(1, 9),
    blank_threshold=st.sampled_from([0.5, 0.9, 0.98, 1.0]),
)
all_phrases = st.lists(
    st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.floats(0.5, 4)), min_size=1, max_size=3
)


@given(matrices(), all_options)
def test_the_plain_search_finds_the_same(log_probs: np.ndarray, options: PrefixBeamOptions) -> None:
    assert_equal(search(log_probs, options), plain_search(log_probs, options))


@given(matrices(), all_options, all_phrases)
def test_the_plain_search_finds_the_same_with_hotwords(
    log_probs: np.ndarray, options: PrefixBeamOptions, phrases: list[tuple[list[int], float]]
) -> None:
    assert_equal(search(log_probs, options, phrases=phrases), plain_search(log_probs, options, phrases=phrases))


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(10, 20), st.integers(3, 6), st.sampled_from([0.98, 1.0]))
def test_the_plain_search_finds_the_same_of_few_tokens(seed: int, frames: int, beam: int, threshold: float) -> None:
    """So that prefixes meet often, and tokens come again."""
    log_probs, options = random_log_probs(seed, frames, 3, 1.0), PrefixBeamOptions(beam, 3, threshold)
    assert_equal(search(log_probs, options), plain_search(log_probs, options))


@given(matrices(blank=3), all_options)
def test_the_blank_may_have_any_id(log_probs: np.ndarray, options: PrefixBeamOptions) -> None:
    assert_equal(search(log_probs, options, blank=3), plain_search(log_probs, options, blank=3))


@given(matrices(), all_options, st.lists(st.integers(0, 5), max_size=12))
def test_however_a_stream_is_cut_it_ends_the_same(
    log_probs: np.ndarray, options: PrefixBeamOptions, sizes: list[int]
) -> None:
    strategy = make(options, log_probs.shape[1])
    session = strategy.open()
    left = log_probs
    for size in sizes:
        feed(strategy, session, left[:size])
        left = left[size:]
        strategy.best(session)
    feed(strategy, session, left)
    assert session.frames_seen == len(log_probs)
    assert_equal(strategy.n_best(session, 100), search(log_probs, options))


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 9), st.booleans()), min_size=1, max_size=5),
    all_options,
    st.data(),
)
def test_streams_of_a_call_do_not_touch(
    streams: list[tuple[int, int, bool]], options: PrefixBeamOptions, data: st.DataObject
) -> None:
    """Some have hotwords; each call takes any of them, in any order, with any number of frames."""
    strategy = make(options, 6)
    phrases = [([1, 2], 2.0), ([3], 1.0)]
    whole = [random_log_probs(seed, frames, 6) for seed, frames, _ in streams]
    sessions = [strategy.open(build_graph(phrases) if biased else None) for _, _, biased in streams]
    left = list(whole)
    while any(map(len, left)):
        chosen = data.draw(st.permutations(range(len(streams))))[: data.draw(st.integers(1, len(streams)))]
        parts = [left[index][: data.draw(st.integers(0, 9))] for index in chosen]
        if not any(map(len, parts)):
            parts = [left[index] for index in chosen]
        if any(map(len, parts)):
            strategy.advance([sessions[index] for index in chosen], scored(strategy, parts), list(map(len, parts)))
        for index, part in zip(chosen, parts, strict=True):
            left[index] = left[index][len(part) :]
    for session, log_probs, (_, _, biased) in zip(sessions, whole, streams, strict=True):
        assert_equal(strategy.n_best(session, 100), search(log_probs, options, phrases=phrases if biased else ()))


# what a search is, from its definition


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(0, 2))
def test_a_beam_that_drops_nothing_sums_all_alignments(seed: int, frames: int, blank: int) -> None:
    log_probs = random_log_probs(seed, frames, 3, 1.0, blank)
    sums: dict[tuple[int, ...], float] = {}
    for path in product(range(3), repeat=frames):
        merged = [token for index, token in enumerate(path) if index == 0 or token != path[index - 1]]
        tokens = tuple(token for token in merged if token != blank)
        value = sum(float(log_probs[frame, token]) for frame, token in enumerate(path))
        sums[tokens] = float(np.logaddexp(sums.get(tokens, NONE), value))
    found = search(log_probs, PrefixBeamOptions(70, 3, 1.0), blank)
    assert {one.tokens for one in found} == set(sums)
    assert [one.score for one in found] == pytest.approx([sums[one.tokens] for one in found], abs=1e-9)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert np.exp([one.score for one in found]).sum() == pytest.approx(1, abs=1e-5)


def certain(*frames: tuple[int, float], vocabulary: int = 5) -> np.ndarray:
    """Frames on which one token has the given probability and the others share the rest."""
    rows = np.empty((len(frames), vocabulary))
    for row, (token, probability) in zip(rows, frames, strict=True):
        row[:] = (1 - probability) / (vocabulary - 1)
        row[token] = probability
    return np.log(rows).astype(np.float32)


def test_a_beam_of_one_prefix_works() -> None:
    log_probs = certain((1, 0.9), (1, 0.8), (BLANK, 0.9), (2, 0.9), (2, 0.95), (BLANK, 0.9))
    (best,) = search(log_probs, PrefixBeamOptions(beam_size=1, token_top_k=3, blank_threshold=1.0))
    assert best.tokens == (1, 2)
    assert best.frames == (0, 4)
    assert best.confidences == pytest.approx((0.9, 0.95), abs=1e-6)


def test_equal_tokens_need_a_blank_between_them() -> None:
    options = PrefixBeamOptions(blank_threshold=1.0)
    assert search(certain((1, 0.99), (1, 0.99)), options)[0].tokens == (1,)
    assert search(certain((1, 0.99), (BLANK, 0.9), (1, 0.99)), options)[0].tokens == (1, 1)


def test_blank_frames_that_are_passed_over_part_equal_tokens() -> None:
    log_probs = certain((1, 0.9), (BLANK, 0.995), (1, 0.9))
    best, *_ = search(log_probs, PrefixBeamOptions())
    assert (best.tokens, best.frames) == ((1, 1), (0, 2))


def test_passing_over_starts_with_the_thresholds_own_probability() -> None:
    """On both sides of it by one unit in the last place."""
    log_probs = certain((BLANK, 0.9))
    log_probs[0, BLANK] = np.float32(math.log(0.9))
    options = PrefixBeamOptions(blank_threshold=0.9)
    assert search(log_probs, options) == [Hypothesis()]
    log_probs[0, BLANK] = np.nextafter(log_probs[0, BLANK], np.float32(-1))
    assert_equal(search(log_probs, options), search(log_probs, PrefixBeamOptions(blank_threshold=1.0)))


def test_a_threshold_of_one_passes_over_nothing() -> None:
    log_probs = random_log_probs(5, 4, 5)
    log_probs[1:3] -= 40
    # As certain as can be.
    log_probs[1:3, BLANK] = 0.0
    options = PrefixBeamOptions(blank_threshold=1.0)
    assert make(options, 5).needs == Needs(top_k=5, gate=math.inf)
    assert_equal(search(log_probs, options), plain_search(log_probs, options))
    passing = search(log_probs, PrefixBeamOptions())
    assert [one.score for one in search(log_probs, options)] != [one.score for one in passing]


@given(matrices(), all_options)
def test_a_confidence_is_the_posterior_at_the_peak(log_probs: np.ndarray, options: PrefixBeamOptions) -> None:
    for one in search(log_probs, options):
        assert list(one.frames) == sorted(set(one.frames))
        expected = [np.exp(np.float64(log_probs[frame, token])) for frame, token in zip(one.frames, one.tokens)]
        assert one.confidences == pytest.approx(expected, abs=1e-12)


def test_nothing_heard_is_the_empty_hypothesis() -> None:
    strategy = make(PrefixBeamOptions(), 5)
    session = strategy.open()
    assert strategy.best(session) == Hypothesis()
    assert strategy.n_best(session, 10) == [Hypothesis()]
    scores = scored(strategy, [certain((1, 0.9))])
    strategy.advance([], scores, [])
    strategy.advance([session], scores, [0])
    assert strategy.n_best(session, 10) == [Hypothesis()]


@given(matrices(), all_options, st.integers(1, 7))
def test_there_are_no_more_hypotheses_than_there_are(
    log_probs: np.ndarray, options: PrefixBeamOptions, count: int
) -> None:
    strategy = make(options, log_probs.shape[1])
    session = strategy.open()
    feed(strategy, session, log_probs)
    everything = strategy.n_best(session, strategy.max_n_best)
    assert 1 <= len(everything) <= strategy.max_n_best == options.beam_size
    assert len({one.tokens for one in everything}) == len(everything)
    assert all(math.isfinite(one.score) for one in everything)
    assert strategy.n_best(session, count) == everything[:count]
    assert strategy.best(session) == everything[0]


@given(matrices(max_frames=20), all_options)
def test_partial_results_are_those_of_what_was_fed(log_probs: np.ndarray, options: PrefixBeamOptions) -> None:
    """Each reuses what it shares with the last one."""
    strategy = make(options, log_probs.shape[1])
    session = strategy.open()
    for frame in range(len(log_probs)):
        feed(strategy, session, log_probs[frame : frame + 1])
        assert_equal([strategy.best(session)], plain_search(log_probs[: frame + 1], options)[:1])


# slots and memory


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2**32 - 1), st.integers(0, 6)), max_size=30))
def test_a_session_sees_nothing_of_its_slots_last_user(turns: list[tuple[bool, int, int]]) -> None:
    """Sessions open and close in any order; every one is checked at its end."""
    options = PrefixBeamOptions(beam_size=3)
    strategy = make(options, 5)
    living: list[tuple[DecodeSession, np.ndarray]] = []

    def end(session: DecodeSession, log_probs: np.ndarray) -> None:
        assert_equal(strategy.n_best(session, 10), search(log_probs, options))
        strategy.close(session)

    for closes, seed, frames in turns:
        if closes and living:
            end(*living.pop(seed % len(living)))
            continue
        log_probs = random_log_probs(seed, frames, 5)
        session = strategy.open()
        assert strategy.n_best(session, 10) == [Hypothesis()]
        feed(strategy, session, log_probs)
        living.append((session, log_probs))
    for session, log_probs in living:
        end(session, log_probs)


def test_there_is_room_for_more_streams_than_at_first() -> None:
    options = PrefixBeamOptions(beam_size=3)
    strategy = make(options, 5)
    whole = [random_log_probs(seed, 8, 5) for seed in range(40)]
    sessions: list[DecodeSession] = []
    for log_probs in whole:
        sessions.append(strategy.open())
        # Those that are under way already keep what they have.
        feed(strategy, sessions[-1], log_probs[:4])
    strategy.advance(sessions, scored(strategy, [log_probs[4:] for log_probs in whole]), [4] * len(whole))
    for session, log_probs in zip(sessions, whole, strict=True):
        assert_equal(strategy.n_best(session, 10), search(log_probs, options))


@given(st.integers(0, 2**32 - 1), all_options, st.integers(1, 4), st.sampled_from([0, 1, 5, 40]))
def test_forgetting_what_nobody_needs_changes_nothing(
    seed: int, options: PrefixBeamOptions, chunk: int, limit: int
) -> None:
    log_probs = random_log_probs(seed, 30, 6)
    expected = search(log_probs, options)
    strategy = make(options, 6)
    session = strategy.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_beam, "_COMPACT_NODES", limit)
        for start in range(0, len(log_probs), chunk):
            feed(strategy, session, log_probs[start : start + chunk])
            strategy.best(session)
            # What is left is no more than the hypotheses have tokens.
            assert session.trie.count <= max(limit, 1 + 2 * options.beam_size * (start + chunk))
    assert_equal(strategy.n_best(session, 100), expected)


def test_a_long_streams_trie_stays_as_small_as_its_hypotheses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_beam, "_COMPACT_NODES", 64)
    strategy = make(PrefixBeamOptions(beam_size=2, blank_threshold=1.0), 4)
    session = strategy.open()
    word = certain((1, 0.9), (BLANK, 0.9), (2, 0.9), (BLANK, 0.9), vocabulary=4)
    for _ in range(40):
        feed(strategy, session, word)
    assert strategy.best(session).tokens == (1, 2) * 40
    assert strategy.best(session).frames == tuple(range(0, 160, 2))
    assert session.trie.count <= 2 * 80 + 8


def test_scores_wider_than_asked_for_change_nothing() -> None:
    """Another request of the batch may need more tokens a frame."""
    log_probs = random_log_probs(3, 20, 8, 1.0)
    narrow = make(PrefixBeamOptions(beam_size=4, token_top_k=2, blank_threshold=1.0), 8)
    wide = make(PrefixBeamOptions(beam_size=4, token_top_k=6, blank_threshold=1.0), 8)
    own, other = narrow.open(), narrow.open()
    feed(narrow, own, log_probs)
    narrow.advance([other], scored(wide, [log_probs]), [len(log_probs)])
    assert_equal(narrow.n_best(other, 10), narrow.n_best(own, 10))


# options


def test_the_registry_builds_by_name() -> None:
    strategy = build_strategy("ctc_prefix_beam", DecodeSetup(0, 50, strategy_options("ctc_prefix_beam", {})))
    assert strategy.needs == Needs(top_k=10, gate=math.log(0.98))
    assert (strategy.max_n_best, strategy.biases, strategy.times_tokens) == (10, True, True)


def test_no_more_tokens_are_considered_than_there_are() -> None:
    assert make(PrefixBeamOptions(beam_size=10), 5).needs.top_k == 5
    assert make(PrefixBeamOptions(beam_size=3), 5).needs.top_k == 3
    assert make(PrefixBeamOptions(beam_size=3, token_top_k=4), 5).needs.top_k == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beam_size": 0}, "beam_size is 0; it must be a whole number of at least 1"),
        ({"beam_size": True}, "beam_size is True"),
        ({"beam_size": 2.0}, r"beam_size is 2\.0"),
        ({"token_top_k": 0}, "token_top_k is 0"),
        ({"token_top_k": "4"}, "token_top_k is '4'"),
        ({"blank_threshold": 0}, "blank_threshold is 0; it must be above 0 and at most 1"),
        ({"blank_threshold": 1.5}, r"blank_threshold is 1\.5"),
        ({"blank_threshold": math.nan}, "blank_threshold is nan"),
        ({"blank_threshold": "0.9"}, r"blank_threshold is '0\.9'"),
        ({"beam": 4}, "decode_options has beam; ctc_prefix_beam knows beam_size, token_top_k, blank_threshold"),
    ],
)
def test_an_impossible_option_is_refused_by_name(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        strategy_options("ctc_prefix_beam", options)
