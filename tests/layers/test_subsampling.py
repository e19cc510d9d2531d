"""The convolutional front end."""

import pytest
import torch
from torch import Tensor

from oasr_backend.layers.subsampling import ConvSubsampling
from tests.layers.weights import CPU, encoder_config, randn, random_state, reader

CONFIG = encoder_config(input_dim=20, dim=8)
GEOMETRY = CONFIG.geometry
STATE = random_state(
    {
        "encoder.embed.conv.0.weight": (8, 1, 3, 3),
        "encoder.embed.conv.0.bias": (8,),
        "encoder.embed.conv.2.weight": (8, 8, 3, 3),
        "encoder.embed.conv.2.bias": (8,),
        "encoder.embed.out.0.weight": (8, 8 * 4),
        "encoder.embed.out.0.bias": (8,),
    }
)


def build() -> ConvSubsampling:
    return ConvSubsampling(reader(STATE), CONFIG, 8**0.5, CPU, torch.float32)


def by_the_book(features: Tensor) -> Tensor:
    x = features[:, None]
    for index in (0, 2):
        name = f"encoder.embed.conv.{index}"
        x = torch.nn.functional.conv2d(x, STATE[f"{name}.weight"], STATE[f"{name}.bias"], stride=2).relu()
    x = x.transpose(1, 2).flatten(2) @ STATE["encoder.embed.out.0.weight"].T + STATE["encoder.embed.out.0.bias"]
    return x * 8**0.5


@pytest.mark.parametrize("frames", [7, 8, 67, 150])
def test_two_convolutions_and_a_linear_layer(frames: int) -> None:
    features = randn(2, frames, 20)
    torch.testing.assert_close(build()(features), by_the_book(features), atol=1e-3, rtol=1e-4)


def test_windows_give_the_frames_of_the_whole() -> None:
    features = randn(1, 150, 20)
    module = build()
    whole = module(features)
    chunks = [module(features[:, start : start + GEOMETRY.window(8)]) for start in range(0, 144, GEOMETRY.stride(8))]
    torch.testing.assert_close(torch.cat(chunks, dim=1), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 30, 100, 200])
@pytest.mark.parametrize("rows", [1, 3])
def test_blocks_give_what_one_pass_gives(monkeypatch: pytest.MonkeyPatch, rows: int, size: int) -> None:
    """Of time where a row is long, and of rows."""
    features = randn(rows, 331, 20)
    whole = build()(features)
    monkeypatch.setattr("oasr_backend.layers.subsampling._CPU_BLOCK", size)
    torch.testing.assert_close(build()(features), whole, atol=1e-4, rtol=1e-4)
