"""Convolutions of every channel by itself, against the sum that they are."""

import pytest
import torch
from torch import Tensor

from oasr_backend.layers.depthwise import Depthwise
from tests.layers.weights import CPU, randn


def by_the_book(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Σ_k w[c, k] x[t + k, c] + b[c] in float64."""
    kernel = weight.shape[-1]
    frames = x.shape[1] - kernel + 1
    taps = [x[:, k : k + frames].double() * weight[:, 0, k].double() for k in range(kernel)]
    return torch.stack(taps).sum(0) + bias.double()


@pytest.mark.usefixtures("convolution_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [7, 64])
@pytest.mark.parametrize("kernel", [1, 2, 8, 15])
@pytest.mark.parametrize(("batch", "frames"), [(1, 1), (3, 1), (1, 16), (3, 300)])
def test_every_tap_of_every_channel(dtype: torch.dtype, dim: int, kernel: int, batch: int, frames: int) -> None:
    x = randn(batch, kernel - 1 + frames, dim).to(dtype)
    weight, bias = randn(dim, 1, kernel, seed=1).to(dtype), randn(dim, seed=2).to(dtype)
    with torch.inference_mode():
        y = Depthwise(weight, bias, CPU, dtype)(x)
    # Whatever it is given, on CPU it is as exact as float32.
    torch.testing.assert_close(y, by_the_book(x, weight, bias).float(), atol=1e-5, rtol=1e-5)
