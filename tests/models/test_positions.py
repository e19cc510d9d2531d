"""What the layers of a pass are told of positions."""

import pytest
import torch

from oasr_backend.layers.attention import PositionWeights
from oasr_backend.layers.positional import SinusoidalPosition
from oasr_backend.models.positions import PositionEncoding
from tests.layers.weights import CPU, encoder_config, randn

HEADS, SIZE, DIM, LAYERS = 2, 4, 8, 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [7, 2044, 90_000], ids=["kept", "partly kept", "computed"])
def test_every_layer_has_its_projection_and_its_bias(dtype: torch.dtype, first: int) -> None:
    weights = [
        PositionWeights(randn(HEADS * SIZE, DIM, seed=layer), randn(HEADS, SIZE, seed=10 + layer))
        for layer in range(LAYERS)
    ]
    encoding = PositionEncoding(encoder_config(layers=LAYERS), weights, CPU, dtype)
    x, positions = randn(2, 5, DIM).to(dtype), torch.stack((torch.arange(5), torch.arange(first, first + 5)))
    unchanged, place = encoding(x, positions)
    assert unchanged is x
    sinusoid = SinusoidalPosition(DIM, CPU)(positions)
    for layer, one in enumerate(weights):
        expected = (sinusoid @ one.projection.T).unflatten(-1, (HEADS, SIZE))
        tolerance = 1e-5 if dtype is torch.float32 else 0.05
        torch.testing.assert_close(place.projected(layer), expected.to(dtype), atol=tolerance, rtol=tolerance)
        # float32 whatever the rest is, as the scores that it is added to.
        torch.testing.assert_close(place.bias(layer), (expected * one.v).sum(-1), atol=1e-5, rtol=1e-5)
