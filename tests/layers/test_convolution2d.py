"""Strided convolutions with ReLU, channels last."""

import pytest
import torch

from oasr_backend.layers.convolution2d import Convolution2d
from tests.layers.weights import CPU, randn


@pytest.mark.usefixtures("convolution_kernels")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3, 32])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 3)])
@pytest.mark.parametrize(("batch", "frames"), [(1, 5), (3, 40)])
def test_the_librarys_convolution(
    dtype: torch.dtype, channels: int, kernel: int, stride: int, batch: int, frames: int
) -> None:
    x = randn(batch, frames, 19, channels).to(dtype)
    weight, bias = randn(32, channels, kernel, kernel, seed=1).to(dtype), randn(32, seed=2).to(dtype)
    y = Convolution2d(weight, bias, stride, CPU, dtype)(x)
    expected = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2).double(), weight.double(), bias.double(), stride)
    assert y.dtype is dtype
    tolerance = 1e-4 if dtype is torch.float32 else 2**-7
    torch.testing.assert_close(y.double(), expected.relu().permute(0, 2, 3, 1), atol=tolerance, rtol=tolerance)


def test_a_quantized_one_is_near() -> None:
    x, weight, bias = randn(2, 9, 19, 32), randn(32, 32, 3, 3, seed=1), randn(32, seed=2)
    exact = Convolution2d(weight, bias, 2, CPU, torch.float32)(x)
    rounded = Convolution2d(weight, bias, 2, CPU, torch.float32, quantized=True)(x)
    assert not torch.equal(rounded, exact)
    assert (rounded - exact).norm() < 0.03 * exact.norm()
