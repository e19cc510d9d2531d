"""Weights as whole numbers."""

import torch

from oasr_backend.quantization.int8_weight import Int8Weight
from tests.layers.weights import randn


def test_half_a_step_of_its_channel_is_the_largest_error() -> None:
    weight = randn(6, 3, 5) * torch.logspace(-3, 2, 6)[:, None, None]
    rounded = Int8Weight.of(weight)
    assert rounded.values.dtype is torch.int8
    assert rounded.values.shape == weight.shape
    error = (rounded.restored() - weight).abs().flatten(1).amax(1)
    assert (error <= 0.5001 * rounded.scales).all()


def test_what_is_restored_is_rounded_to_the_same_numbers() -> None:
    once = Int8Weight.of(randn(64, 256))
    again = Int8Weight.of(once.restored())
    assert torch.equal(once.values, again.values)
    torch.testing.assert_close(once.scales, again.scales, rtol=3e-7, atol=0)


def test_a_channel_of_zeros_stays_zero() -> None:
    rounded = Int8Weight.of(torch.zeros(2, 3))
    assert rounded.restored().equal(torch.zeros(2, 3))
