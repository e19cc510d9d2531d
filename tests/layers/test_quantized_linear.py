"""Products of int8 weights and activations."""

import warnings

import pytest
import torch

from oasr_backend.errors import ConfigError
from oasr_backend.layers.linear import Activation, Linear
from oasr_backend.layers.quantized_linear import QuantizedLinear, require_int8
from tests.layers.weights import CPU, randn

WEIGHT, BIAS = randn(48, 256, seed=1), randn(48, seed=2)


def layer(activation: Activation = "none", dtype: torch.dtype = torch.float32) -> QuantizedLinear:
    return QuantizedLinear(WEIGHT, BIAS, CPU, dtype, activation)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    """To the bit, however large they are and however many."""
    x = randn(130, 256) * torch.logspace(-3, 3, 130)[:, None]
    together = layer()(x)
    for start, end in ((0, 1), (7, 8), (3, 20), (64, 130)):
        assert torch.equal(layer()(x[start:end]), together[start:end])
    beside = x.clone()
    beside[1:] = 1e4
    assert torch.equal(layer()(beside)[0], together[0])


def test_the_error_is_that_of_the_rounding() -> None:
    """Half a step of every factor, which for random signs adds up like noise."""
    x = randn(64, 256) * torch.logspace(-2, 2, 64)[:, None]
    exact = x.double() @ WEIGHT.double().T
    error = (layer()(x) - BIAS - exact).norm(dim=1) / exact.norm(dim=1)
    assert error.max() < 0.03
    # Extreme values saturate nothing.
    same = torch.full((2, 256), 5.0)
    ones = QuantizedLinear(torch.ones(8, 256), None, CPU, torch.float32)
    torch.testing.assert_close(ones(same), torch.full((2, 8), 1280.0), rtol=1e-5, atol=0)
    torch.testing.assert_close(ones(-same), torch.full((2, 8), -1280.0), rtol=1e-5, atol=0)


@pytest.mark.parametrize("activation", ["none", "swish", "relu", "gelu"])
@pytest.mark.parametrize("shape", [(256,), (3, 256), (2, 3, 256), (2, 0, 256)], ids=str)
def test_shapes_and_activations(activation: Activation, shape: tuple[int, ...]) -> None:
    x = randn(*shape)
    expected = Linear(WEIGHT, BIAS, CPU, torch.float32, activation)(x)
    torch.testing.assert_close(layer(activation)(x), expected, atol=1.5, rtol=0)


def test_a_residual_is_added_and_left_as_it_was() -> None:
    x, residual = randn(4, 3, 256), randn(4, 3, 48, seed=3)
    before = residual.clone()
    torch.testing.assert_close(layer()(x, residual), layer()(x) + residual)
    assert residual.equal(before)


def test_the_input_is_left_as_it_was_and_a_view_gives_what_its_copy_gives() -> None:
    x = randn(256, 6).T[::2]
    before = x.clone()
    assert torch.equal(layer()(x), layer()(x.contiguous()))
    assert x.equal(before)


def test_zeros_give_the_bias_and_nan_stays_in_its_row() -> None:
    x = torch.zeros(3, 256)
    x[1, 5] = torch.nan
    y = layer()(x)
    assert y[0].equal(BIAS)
    assert y[1].isnan().all()
    assert y[2].equal(BIAS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrower_dtype_rounds_the_result_and_no_more(dtype: torch.dtype) -> None:
    x = randn(4, 256).to(dtype)
    residual = randn(4, 48, seed=3).to(dtype)
    y = layer(dtype=dtype)(x, residual)
    assert y.dtype is dtype
    torch.testing.assert_close(y, layer()(x.float(), residual.float()).to(dtype))


def test_the_process_keeps_its_engine_and_hears_no_warning() -> None:
    before = torch.backends.quantized.engine
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer()(randn(2, 256))
    assert torch.backends.quantized.engine == before


def test_a_processor_without_the_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oasr_backend.layers.quantized_linear._CPU_ENGINE", "another")
    with pytest.raises(ConfigError, match="int8 products, which PyTorch does not have on cpu"):
        require_int8(CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("rows", [1, 16, 40])
def test_a_gpu_gives_nearly_the_same(rows: int) -> None:
    x = randn(rows, 256)
    cuda = torch.device("cuda")
    y = QuantizedLinear(WEIGHT[:45], BIAS[:45], cuda, torch.float32)(x.to(cuda)).cpu()
    torch.testing.assert_close(y, x @ WEIGHT[:45].T + BIAS[:45], atol=1.0, rtol=0)
