"""Layers run as they are served: without autograd."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.fixture(params=["packed", "plain"])
def convolution_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By oneDNN's convolution, and as on a machine without it."""
    if request.param == "plain":
        for module in ("convolution2d", "depthwise"):
            monkeypatch.setattr(f"oasr_backend.layers.{module}.onednn_multiplies", lambda device, dtype: False)
