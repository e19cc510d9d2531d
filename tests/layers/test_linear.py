"""Matrix products with what is fused into them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oasr_backend.layers.linear import Activation, Linear
from tests.layers.weights import CPU, randn

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": torch.nn.functional.gelu,
    "none": lambda x: x,
    "swish": lambda x: x * torch.sigmoid(x),
    "relu": lambda x: x.clamp_min(0),
}
WEIGHT, BIAS = randn(7, 5, seed=1), randn(7, seed=2)


@pytest.fixture(params=["AVX-512", "AVX2", "plain"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With oneDNN's packed weights on either kind of processor, and as on a machine without them."""
    monkeypatch.setattr("oasr_backend.layers.linear._has_avx512", lambda: request.param == "AVX-512")
    if request.param == "plain":
        monkeypatch.setattr("oasr_backend.layers.linear.onednn_multiplies", lambda device, dtype: False)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (2, 0, 5)], ids=str)
def test_product_bias_and_activation(activation: Activation, shape: tuple[int, ...]) -> None:
    x = randn(*shape)
    expected = ACTIVATIONS[activation](x @ WEIGHT.T + BIAS)
    torch.testing.assert_close(Linear(WEIGHT, BIAS, CPU, torch.float32, activation)(x), expected)


@pytest.mark.usefixtures("kernels")
def test_a_residual_is_added_and_left_as_it_was() -> None:
    x, residual = randn(4, 3, 5), randn(4, 3, 7, seed=3)
    before = residual.clone()
    torch.testing.assert_close(Linear(WEIGHT, BIAS, CPU, torch.float32)(x, residual), x @ WEIGHT.T + BIAS + residual)
    assert residual.equal(before)


@pytest.mark.usefixtures("kernels")
def test_no_bias() -> None:
    torch.testing.assert_close(Linear(WEIGHT, None, CPU, torch.float32)(randn(3, 5)), randn(3, 5) @ WEIGHT.T)


@pytest.mark.usefixtures("kernels")
def test_a_view_gives_what_its_copy_gives() -> None:
    x = randn(5, 6).T[::2]
    assert not x.is_contiguous()
    torch.testing.assert_close(Linear(WEIGHT, BIAS, CPU, torch.float32)(x), x @ WEIGHT.T + BIAS)


@pytest.mark.usefixtures("kernels")
def test_bfloat16_rounds_and_no_more() -> None:
    x = randn(16, 5)
    y = Linear(WEIGHT, BIAS, CPU, torch.bfloat16, "swish")(x.bfloat16())
    assert y.dtype is torch.bfloat16
    expected = torch.nn.functional.silu(x @ WEIGHT.T + BIAS)
    torch.testing.assert_close(y.float(), expected, atol=0.06, rtol=0.03)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("rows", [1, 16, 63, 64, 200])
@pytest.mark.parametrize(("out", "inner"), [(48, 16), (16, 48), (16, 16), (600, 500), (500, 600)])
def test_few_rows_and_many_give_the_same(rows: int, out: int, inner: int) -> None:
    """Whichever way the library is asked for it."""
    weight, bias = randn(out, inner, seed=1), randn(out, seed=2)
    x, residual = randn(rows, 2, inner), randn(rows, 2, out, seed=3)
    product = x @ weight.T
    for given, expected in ((bias, product + bias), (None, product)):
        y = Linear(weight, given, CPU, torch.float32)(x)
        assert y.is_contiguous()
        torch.testing.assert_close(y, expected, atol=1e-3, rtol=1e-4)
        y = Linear(weight, given, CPU, torch.float32)(x, residual)
        torch.testing.assert_close(y, expected + residual, atol=1e-3, rtol=1e-4)
        y = Linear(weight, given, CPU, torch.float32, "swish")(x)
        torch.testing.assert_close(y, torch.nn.functional.silu(expected), atol=1e-3, rtol=1e-4)
