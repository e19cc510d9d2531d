"""Lazily mapped tensors."""

import resource

import pytest
import torch

from oasr_backend.utils.buffers import lazy_zeros


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_they_are_zero_and_writable(dtype: torch.dtype) -> None:
    zeros = lazy_zeros(3, 4, 5, dtype=dtype, device=torch.device("cpu"))
    assert zeros.shape == (3, 4, 5)
    assert zeros.dtype is dtype
    assert not zeros.any()
    zeros[1, 2, 3] = 1.5
    assert zeros.sum().item() == 1.5


def test_untouched_parts_take_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    zeros = lazy_zeros(1 << 30, dtype=torch.float32, device=torch.device("cpu"))
    zeros[:: 1 << 28] = 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB, of 4 GiB
