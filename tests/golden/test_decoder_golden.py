"""The attention decoder against WeNet's, hypothesis by hypothesis."""

import numpy as np
import pytest
import torch

from oasr_backend.models.wenet import WenetModel
from tests.golden.cases import UTTERANCES, GoldenCase, recorded_fbank


@torch.inference_mode()
@pytest.mark.parametrize("utterance", UTTERANCES)
def test_left_and_right_scores_of_the_recorded_hypotheses(case: GoldenCase, utterance: int) -> None:
    model = case.model
    assert isinstance(model, WenetModel)
    recorded = case.decoded["offline_single"][utterance]
    hypotheses = recorded["ctc_prefix_beam_search"][0]["nbest"]
    features = torch.from_numpy(recorded_fbank(utterance))[None]
    hidden = model.encode_clips(features, torch.tensor([case.recorded_frames(utterance)]))
    scores = model.decoder.score(hidden, hypotheses)
    expected = recorded["decoder_scores"][0]
    np.testing.assert_allclose(scores.left, expected["l2r"], atol=1e-3)
    assert bool(expected["r2l"]) == case.checkpoint.model.decoder.bidirectional
    if scores.right is not None:
        np.testing.assert_allclose(scores.right, expected["r2l"], atol=1e-3)


@torch.inference_mode()
def test_a_hypothesis_scores_the_same_alone_and_among_longer_ones() -> None:
    case = GoldenCase("u2pp_conformer_ln_causal")
    assert isinstance(case.model, WenetModel)
    hidden = case.model.encode_clips(torch.from_numpy(recorded_fbank(0))[None], torch.tensor([30]))
    hypotheses = [[5, 6], [], [7, 8, 9, 10, 11, 12]]
    together = case.model.decoder.score(hidden, hypotheses)
    assert together.right is not None
    for row, tokens in enumerate(hypotheses):
        alone = case.model.decoder.score(hidden, [tokens])
        assert alone.right is not None
        torch.testing.assert_close(together.left[row], alone.left[0])
        torch.testing.assert_close(together.right[row], alone.right[0])
