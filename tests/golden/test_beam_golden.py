"""Prefix beam search, hotwords and rescoring against WeNet's, on the recorded log-probabilities."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr_backend.decode.base import DecodeSession, DecodeSetup, Hypothesis, Rescorer
from oasr_backend.decode.hotwords import HotwordGraph, build_graph
from oasr_backend.decode.prefix_beam import PrefixBeamOptions, PrefixBeamStrategy
from oasr_backend.decode.rescoring import RescoringOptions, RescoringStrategy
from oasr_backend.decode.scores import FrameScores
from oasr_backend.models.decoder import RescoringDecoder
from oasr_backend.models.wenet import WenetModel
from tests.golden.cases import TIE, UTTERANCES, GoldenCase, arrays, recorded_fbank
from tests.golden.test_decode_golden import recorded_streaming
from tests.streams import FeatureStreams

BEAM = 10
# Per hypothesis: sums of up to sixty terms.
SCORE_ATOL = 1e-3


@dataclass(frozen=True)
class Recorded:
    """One recorded list of hypotheses and what it was made from."""

    log_probs: np.ndarray
    tokens: list[list[int]]
    scores: list[float]
    times: list[list[int]]


def recorded(log_probs: np.ndarray, entry: dict) -> Recorded:
    return Recorded(log_probs, entry["nbest"], entry["nbest_scores"], entry["nbest_times"])


def recorded_lists(case: GoldenCase) -> Iterator[Recorded]:
    """Of every clip alone, in the batch, and streamed where WeNet streams."""
    decoded = case.decoded
    for utterance in UTTERANCES:
        alone = decoded["offline_single"][utterance]["ctc_prefix_beam_search"][0]
        yield recorded(case.recorded_offline(utterance), alone)
        in_batch = decoded["offline_batch"]["ctc_prefix_beam_search"][utterance]
        yield recorded(case.recorded_in_batch(utterance), in_batch)
        if "streaming_c16_l4" in decoded:
            streamed = decoded["streaming_c16_l4"][utterance]["ctc_prefix_beam_search"][0]
            yield recorded(recorded_streaming(case, utterance), streamed)


def search(case: GoldenCase) -> PrefixBeamStrategy:
    """As WeNet searches: no frame passed over, as many tokens a frame as prefixes."""
    model = case.checkpoint.model
    options = PrefixBeamOptions(beam_size=BEAM, token_top_k=BEAM, blank_threshold=1.0)
    return PrefixBeamStrategy(DecodeSetup(model.blank_id, model.vocab_size, options))


def scored(case: GoldenCase, rows: Sequence[np.ndarray]) -> FrameScores:
    """Log-probabilities of several streams, padded with what must not be read."""
    longest = max(map(len, rows))
    padded = np.full((len(rows), longest, case.checkpoint.model.vocab_size), -0.1, dtype=np.float32)
    for row, log_probs in enumerate(rows):
        padded[row, : len(log_probs)] = log_probs
    values = torch.from_numpy(padded)
    best = values.topk(BEAM)
    return FrameScores(best.indices, best.values, values[..., case.checkpoint.model.blank_id])


def n_best(
    case: GoldenCase, matrices: Sequence[np.ndarray], hotwords: HotwordGraph | None = None
) -> list[list[Hypothesis]]:
    """Of each matrix of log-probabilities, all in one call."""
    strategy = search(case)
    sessions: list[DecodeSession] = [strategy.open(hotwords) for _ in matrices]
    strategy.advance(sessions, scored(case, matrices), list(map(len, matrices)))
    return [strategy.n_best(session, BEAM) for session in sessions]


@cache
def found_lists(case: GoldenCase) -> list[tuple[Recorded, list[Hypothesis]]]:
    """Every recorded list and what is found of it."""
    lists = list(recorded_lists(case))
    return list(zip(lists, n_best(case, [one.log_probs for one in lists]), strict=True))


def assert_in_recorded_order(own: Sequence[Sequence[int]], tokens: list[list[int]], scores: Sequence[float]) -> None:
    """The same hypotheses; those that are as good as equally good may swap."""
    assert sorted(map(list, own)) == sorted(tokens)
    for place, found in enumerate(own):
        assert abs(scores[tokens.index(list(found))] - scores[place]) < TIE


def test_the_recorded_hypotheses_in_their_order_with_their_scores(case: GoldenCase) -> None:
    for expected, own in found_lists(case):
        assert_in_recorded_order([one.tokens for one in own], expected.tokens, expected.scores)
        np.testing.assert_allclose([one.score for one in own], expected.scores, atol=SCORE_ATOL, rtol=0)


def test_a_tokens_time_lies_in_its_run_and_not_behind_the_recorded_time(case: GoldenCase) -> None:
    """The recorded time is a late frame of the run; on all frames of it the search considers the token."""
    for expected, own in found_lists(case):
        log_probs = expected.log_probs
        considered = np.argsort(-log_probs, axis=1)[:, :BEAM]
        for one in own:
            times = expected.times[expected.tokens.index(list(one.tokens))]
            assert all(before < after for before, after in pairwise(one.frames))
            for token, frame, time, confidence in zip(one.tokens, one.frames, times, one.confidences, strict=True):
                assert frame <= time
                assert (considered[frame : time + 1] == token).any(1).all()
                assert confidence == pytest.approx(np.exp(np.float64(log_probs[frame, token])))


def assert_equal(own: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [(one.tokens, one.frames) for one in own] == [(one.tokens, one.frames) for one in expected]
    np.testing.assert_allclose([one.score for one in own], [one.score for one in expected], atol=1e-9, rtol=0)
    for one, other in zip(own, expected, strict=True):
        np.testing.assert_allclose(one.confidences, other.confidences, atol=1e-12)


@cache
def whole_streams(case: GoldenCase) -> list[tuple[np.ndarray, list[Hypothesis]]]:
    """Streamed log-probabilities of every utterance and what is found of them in one shot, each alone."""
    matrices = [recorded_streaming(case, utterance) for utterance in UTTERANCES]
    return [(matrix, *n_best(case, [matrix])) for matrix in matrices]


@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_a_stream_in_chunks_equals_one_shot(streamed: GoldenCase, chunk: int) -> None:
    """Alone; partial results on the way change nothing."""
    log_probs, expected = whole_streams(streamed)[0 if chunk == 1 else 1]
    strategy = search(streamed)
    session = strategy.open()
    for start in range(0, len(log_probs), chunk):
        part = log_probs[start : start + chunk]
        strategy.advance([session], scored(streamed, [part]), [len(part)])
        strategy.best(session)
    assert_equal(strategy.n_best(session, BEAM), expected)


def test_streams_that_share_calls_raggedly_equal_those_alone(streamed: GoldenCase) -> None:
    strategy = search(streamed)
    matrices = [matrix for matrix, _ in whole_streams(streamed)]
    sessions: list[DecodeSession] = [strategy.open() for _ in matrices]
    left = list(matrices)
    rng = np.random.default_rng(7)
    while any(map(len, left)):
        # Any order, any of them, none of some, and any number of frames.
        chosen = rng.permutation(len(left))[: rng.integers(1, len(left) + 1)]
        parts = [left[index][: rng.integers(0, 20)] for index in chosen]
        if any(map(len, parts)):
            counts = [len(part) for part in parts]
            strategy.advance([sessions[index] for index in chosen], scored(streamed, parts), counts)
        for index, part in zip(chosen, parts, strict=True):
            left[index] = left[index][len(part) :]
    for session, (_, expected) in zip(sessions, whole_streams(streamed), strict=True):
        assert_equal(strategy.n_best(session, BEAM), expected)


def walked(graph: HotwordGraph, tokens: Sequence[int]) -> tuple[float, float]:
    """What a token sequence has gained, and what of that is held by the phrase it stops in."""
    node, gained = 0, 0.0
    for token in tokens:
        column = graph.alphabet.get(token, 0)
        gained += graph.gained[node][column]
        node = graph.reached[node][column]
    return gained, graph.held[node]


def test_the_recorded_hypotheses_with_hotwords(case: GoldenCase) -> None:
    """WeNet reports totals in which what a hypothesis holds, negative, has replaced all that it has gained."""
    info = json.loads((case.path / "info.json").read_text(encoding="utf-8"))
    graph = build_graph([(tokens, info["context_score"]) for tokens in info["context_ids"]])
    lists = [
        recorded(case.recorded_offline(utterance), entry["ctc_prefix_beam_search_context"][0])
        for utterance, entry in enumerate(case.decoded["offline_single"])
    ]
    for expected, own in zip(lists, n_best(case, [one.log_probs for one in lists], graph), strict=True):
        gained = [walked(graph, tokens) for tokens in expected.tokens]
        totals = [score + held + gain for score, (gain, held) in zip(expected.scores, gained, strict=True)]
        assert all(before > after - TIE for before, after in pairwise(totals))
        assert_in_recorded_order([one.tokens for one in own], expected.tokens, totals)
        np.testing.assert_allclose([one.score for one in own], totals, atol=SCORE_ATOL, rtol=0)


def test_the_recorded_hotwords_change_what_is_recorded(case: GoldenCase) -> None:
    """Without which the test above would say nothing."""
    changed = False
    for utterance in UTTERANCES:
        entry = case.decoded["offline_single"][utterance]
        plain, biased = entry["ctc_prefix_beam_search"][0], entry["ctc_prefix_beam_search_context"][0]
        changed |= plain["nbest"][0] != biased["nbest"][0]
    assert changed


# rescoring


def decoder_of(case: GoldenCase) -> RescoringDecoder:
    assert isinstance(case.model, WenetModel)
    return case.model.decoder


@cache
@torch.inference_mode()
def encoded_alone(case: GoldenCase, utterance: int) -> Tensor:
    """[frames, dim]."""
    features = torch.from_numpy(recorded_fbank(utterance))[None]
    return case.model.encode_clips(features, torch.tensor([case.recorded_frames(utterance)]))[0]


@cache
@torch.inference_mode()
def encoded_streaming(case: GoldenCase) -> list[Tensor]:
    """[frames, dim] of each utterance, streamed at chunk 16 with 4 chunks of history."""
    streams = FeatureStreams(case.model, chunk=16, left_chunks=4, streams=3)
    forward = streams.runner.forward_chunks
    chunks: list[list[Tensor]] = [[] for _ in UTTERANCES]
    for utterance in UTTERANCES:

        def recording(requests, windows, frames, needs, kept=chunks[utterance]) -> FrameScores:
            scores = forward(requests, windows, frames, replace(needs, hidden=True))
            assert scores.hidden is not None
            kept.append(scores.hidden[0, : frames[0]].clone())
            return scores

        streams.runner.forward_chunks = recording  # type: ignore[method-assign]
        streams.run([streams.open(recorded_fbank(utterance))])
    return [torch.cat(parts) for parts in chunks]


@dataclass(frozen=True)
class Rescored:
    """Recorded winners of one n-best list, by (weight of the first pass, share of the right-to-left decoder)."""

    encoded: Tensor
    first: Recorded
    winners: dict[tuple[float, float], dict]


def weights(name: str) -> tuple[float, float]:
    """Of an entry `ctc{w}_rev{r}`."""
    ctc, reverse = name.removeprefix("ctc").split("_rev")
    return float(ctc), float(reverse)


def rescored_lists(case: GoldenCase) -> Iterator[Rescored]:
    """Of the same lists in the same order as `recorded_lists`."""
    firsts = recorded_lists(case)
    for utterance in UTTERANCES:
        in_batch = torch.from_numpy(arrays(f"{case.name}/offline.npz")["encoder_out"])
        entries = [
            (encoded_alone(case, utterance), case.decoded["offline_single"][utterance], 0),
            (in_batch[utterance, : case.recorded_frames(utterance)], case.decoded["offline_batch"], utterance),
        ]
        if "streaming_c16_l4" in case.decoded:
            streamed = case.decoded["streaming_c16_l4"][utterance]
            entries.append((encoded_streaming(case)[utterance], streamed, 0))
        for encoded, entry, row in entries:
            winners = {weights(name): rows[row] for name, rows in entry["attention_rescoring"].items()}
            yield Rescored(encoded, next(firsts), winners)


@torch.inference_mode()
def test_rescoring_the_recorded_hypotheses_gives_the_recorded_winners(case: GoldenCase) -> None:
    decoder = decoder_of(case)
    for expected in rescored_lists(case):
        assert {reverse for _, reverse in expected.winners} == ({0.0, 0.3} if decoder.reverse_weight else {0.0})
        for (ctc, reverse), winner in expected.winners.items():
            second = decoder.rescore(expected.encoded[None], expected.first.tokens, reverse).double().numpy()
            totals = second + ctc * np.array(expected.first.scores)
            order = np.argsort(-totals, kind="stable")
            assert totals[order[0]] == pytest.approx(winner["score"], abs=SCORE_ATOL)
            first, second_best = order[:2]
            chosen = expected.first.tokens[first]
            if totals[first] - totals[second_best] < TIE:
                assert winner["tokens"] in (chosen, expected.first.tokens[second_best])
            else:
                assert winner["tokens"] == chosen


class _Rescorer:
    """A decoder with weights of its own."""

    def __init__(self, decoder: RescoringDecoder, ctc_weight: float, reverse_weight: float):
        self.rescore = decoder.rescore
        self.ctc_weight = ctc_weight
        self.reverse_weight = reverse_weight


def recorded_weights(case: GoldenCase) -> list[tuple[float, float]]:
    """Of some list at least."""
    return sorted({pair for one in rescored_lists(case) for pair in one.winners})


def assert_both_passes_win(
    case: GoldenCase, pair: tuple[float, float], options: RescoringOptions, rescorer: Rescorer
) -> None:
    """For every list for which a winner with these weights is recorded, all in one call."""
    model = case.checkpoint.model
    lists = [one for one in rescored_lists(case) if pair in one.winners]
    strategy = RescoringStrategy(DecodeSetup(model.blank_id, model.vocab_size, options, rescorer))
    sessions: list[DecodeSession] = [strategy.open() for _ in lists]
    hidden = torch.nn.utils.rnn.pad_sequence([one.encoded for one in lists], batch_first=True, padding_value=9.0)
    scores = replace(scored(case, [one.first.log_probs for one in lists]), hidden=hidden)
    strategy.advance(sessions, scores, [len(one.encoded) for one in lists])
    for session, expected in zip(sessions, lists, strict=True):
        found, winner = strategy.n_best(session, BEAM), expected.winners[pair]
        # Our own first pass' score, weighted, adds its own tolerance.
        assert found[0].score == pytest.approx(winner["score"], abs=2 * SCORE_ATOL)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        near = [list(one.tokens) for one in found if found[0].score - one.score < TIE]
        assert winner["tokens"] in near


@torch.inference_mode()
def test_both_passes_give_the_recorded_winners(case: GoldenCase) -> None:
    for ctc, reverse in recorded_weights(case):
        options = RescoringOptions(BEAM, BEAM, 1.0, ctc_weight=ctc, reverse_weight=reverse)
        assert_both_passes_win(case, (ctc, reverse), options, decoder_of(case))


@dataclass(frozen=True)
class _Trained:
    """A decoder whose checkpoint has other weights."""

    decoder: RescoringDecoder
    ctc_weight: float
    reverse_weight: float

    def rescore(self, frames: Tensor, hypotheses: Sequence[Sequence[int]], reverse_weight: float) -> Tensor:
        return self.decoder.rescore(frames, hypotheses, reverse_weight)


@torch.inference_mode()
@pytest.mark.parametrize("pair", [(0.5, 0.3), (0.3, 0.0)])
def test_the_checkpoints_weights_hold_where_none_are_given(pair: tuple[float, float]) -> None:
    case = GoldenCase("u2pp_conformer_ln_causal")
    assert_both_passes_win(case, pair, RescoringOptions(BEAM, BEAM, 1.0), _Trained(decoder_of(case), *pair))
