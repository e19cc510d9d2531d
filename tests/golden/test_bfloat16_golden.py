"""Every architecture in bfloat16: the same maths, rounded."""

import numpy as np
import torch

from oasr_backend.decode.scores import Needs
from oasr_backend.models.base import build_model
from tests.golden.cases import CPU, GoldenCase, recorded_fbank


@torch.inference_mode()
def test_log_probs_are_those_of_float32_within_rounding(case: GoldenCase) -> None:
    model = build_model(case.checkpoint, CPU, torch.bfloat16)
    features = torch.from_numpy(recorded_fbank(1))[None]
    scores = model.score(model.encode_clips(features, torch.tensor([case.recorded_frames(1)])), Needs(log_probs=True))
    assert scores.full is not None
    difference = np.abs(scores.full[0].float().numpy() - case.recorded_offline(1))
    # Eight bits of mantissa through a few layers; a wrong term would be of the size of the logits, 2.5.
    assert difference.mean() < 0.1
