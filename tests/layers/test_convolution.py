"""The Conformer's convolution module: by the book, and chunk by chunk."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oasr_backend.layers.convolution import ConvolutionModule
from oasr_backend.models.config import ConvolutionConfig, ConvolutionNorm
from tests.layers.weights import CPU, randn, random_state, reader

DIM, KERNEL = 8, 4


class History:
    """Frames after the gate, as far back as the kernel looks."""

    def __init__(self, fresh: Tensor, batch: int):
        self._frames = fresh.expand(batch, KERNEL - 1, -1)

    def extend(self, layer: int, gated: Tensor, kernel: int, causal: bool) -> Tensor:
        assert (kernel, causal) == (KERNEL, True)
        extended = torch.cat((self._frames, gated), dim=1)
        self._frames = extended[:, -(KERNEL - 1) :]
        return extended

    def kept(self, x: Tensor) -> Tensor:
        return x


def weights(norm: str) -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "c.pointwise_conv1.weight": (2 * DIM, DIM, 1),
        "c.pointwise_conv1.bias": (2 * DIM,),
        "c.depthwise_conv.weight": (DIM, 1, KERNEL),
        "c.depthwise_conv.bias": (DIM,),
        "c.pointwise_conv2.weight": (DIM, DIM, 1),
        "c.pointwise_conv2.bias": (DIM,),
        "c.norm.weight": (DIM,),
        "c.norm.bias": (DIM,),
    }
    state = random_state(shapes)
    if norm == "batch_norm":
        state["c.norm.running_mean"] = randn(DIM, seed=8)
        state["c.norm.running_var"] = randn(DIM, seed=9).square() + 0.1
        state["c.norm.num_batches_tracked"] = torch.tensor(7)
    return state


def build(norm: ConvolutionNorm) -> tuple[ConvolutionModule, dict[str, Tensor]]:
    state = weights(norm)
    weight_reader = reader(state)
    config = ConvolutionConfig(KERNEL, True, norm, True)
    module = ConvolutionModule(weight_reader, "c", DIM, config, "swish", CPU, torch.float32)
    weight_reader.close()
    return module, state


def by_the_book(state: dict[str, Tensor], norm: str, normed: Tensor, residual: Tensor) -> Tensor:
    """As WeNet computes it: zeros before the first pointwise convolution."""
    functional = torch.nn.functional
    x = functional.pad(normed.transpose(1, 2), (KERNEL - 1, 0))
    x = functional.conv1d(x, state["c.pointwise_conv1.weight"], state["c.pointwise_conv1.bias"])
    x = functional.glu(x, dim=1)
    x = functional.conv1d(x, state["c.depthwise_conv.weight"], state["c.depthwise_conv.bias"], groups=DIM)
    gain, shift = state["c.norm.weight"], state["c.norm.bias"]
    if norm == "batch_norm":
        x = functional.batch_norm(x, state["c.norm.running_mean"], state["c.norm.running_var"], gain, shift)
    else:
        x = functional.layer_norm(x.transpose(1, 2), (DIM,), gain, shift).transpose(1, 2)
    x = functional.conv1d(functional.silu(x), state["c.pointwise_conv2.weight"], state["c.pointwise_conv2.bias"])
    return residual + x.transpose(1, 2)


@pytest.mark.parametrize("norm", ["layer_norm", "batch_norm"])
def test_the_whole_clip_by_the_book(norm: str) -> None:
    module, state = build(norm)
    normed, residual = randn(2, 9, DIM), randn(2, 9, DIM, seed=4)
    out = module(0, normed, residual, History(module.fresh_history, 2))
    torch.testing.assert_close(out, by_the_book(state, norm, normed, residual), atol=1e-5, rtol=1e-4)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_chunks_give_what_the_whole_gives(sizes: list[int]) -> None:
    with torch.inference_mode():
        module, _ = build("layer_norm")
        normed, residual = randn(1, sum(sizes), DIM), randn(1, sum(sizes), DIM, seed=4)
        whole = module(0, normed, residual, History(module.fresh_history, 1))
        history = History(module.fresh_history, 1)
        chunks = [
            module(0, part, rest, history)
            for part, rest in zip(normed.split(sizes, dim=1), residual.split(sizes, dim=1), strict=True)
        ]
        torch.testing.assert_close(torch.cat(chunks, dim=1), whole, atol=1e-5, rtol=1e-4)
