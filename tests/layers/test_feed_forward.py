"""The position-wise feed-forward module."""

import pytest
import torch

from oasr_backend.layers.feed_forward import FeedForward
from tests.layers.weights import CPU, randn, random_state, reader


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_two_products_with_the_residual(scale: float) -> None:
    state = random_state({"f.w_1.weight": (16, 8), "f.w_1.bias": (16,), "f.w_2.weight": (8, 16), "f.w_2.bias": (8,)})
    module = FeedForward(reader(state), "f", 8, 16, CPU, torch.float32, scale=scale)
    normed, residual = randn(2, 3, 8), randn(2, 3, 8, seed=5)
    hidden = torch.nn.functional.silu(normed @ state["f.w_1.weight"].T + state["f.w_1.bias"])
    expected = residual + scale * (hidden @ state["f.w_2.weight"].T + state["f.w_2.bias"])
    torch.testing.assert_close(module(normed, residual), expected)
