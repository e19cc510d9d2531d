"""Whether a device still works."""

import pytest
import torch

from oasr_backend.errors import DeviceLostError
from oasr_backend.utils.device import raise_if_lost


def test_a_processor_is_never_lost() -> None:
    raise_if_lost(torch.device("cpu"))


def test_a_device_whose_every_call_fails_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_if_synchronised = []

    def synchronize(device: torch.device) -> None:
        if raise_if_synchronised:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    raise_if_lost(torch.device("cuda:1"))
    raise_if_synchronised.append(True)
    with pytest.raises(DeviceLostError, match="cuda:1 fails every call"):
        raise_if_lost(torch.device("cuda:1"))
