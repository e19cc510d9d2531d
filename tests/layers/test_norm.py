"""Layer normalisation."""

import torch

from oasr_backend.layers.norm import LayerNorm
from tests.layers.weights import CPU, randn, random_state, reader


def test_mean_and_variance_of_the_feature_axis() -> None:
    state = random_state({"n.weight": (8,), "n.bias": (8,)})
    x = randn(2, 3, 8) * 3 + 1
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * state["n.weight"] + state["n.bias"]
    torch.testing.assert_close(LayerNorm(reader(state), "n", 8, CPU, torch.float32)(x), expected)
