"""The history of an offline pass."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.models.memory import ClipMemory, chunk_visibility

CPU = torch.device("cpu")


@given(st.integers(1, 40), st.integers(1, 20), st.integers(-1, 5))
def test_a_frame_sees_its_chunk_and_the_chunks_before_it(frames: int, chunk: int, left: int) -> None:
    visible = chunk_visibility(frames, chunk, left, CPU)
    for query in range(frames):
        first = 0 if left < 0 else max((query // chunk - left) * chunk, 0)
        last = min((query // chunk + 1) * chunk, frames)
        assert visible[query].nonzero().flatten().tolist() == list(range(first, last))


@pytest.mark.parametrize("chunked", [False, True])
def test_padding_is_not_seen(chunked: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 6, 2, 4, generator=generator)
    bias = torch.randn(2, 6, 2, generator=generator)
    visible = chunk_visibility(6, 2, 1, CPU) if chunked else None
    memory = ClipMemory(torch.tensor([4, 6]), 6, None, visible=visible)
    clean = memory.attend(0, query, key, value, bias)
    key[0, 4:], value[0, 4:], bias[0, 4:] = 50.0, 50.0, 50.0
    torch.testing.assert_close(memory.attend(0, query, key, value, bias)[:, :4], clean[:, :4])


def test_a_clip_starts_with_a_fresh_history() -> None:
    fresh = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    memory = ClipMemory(torch.tensor([3, 3]), 3, fresh)
    extended = memory.extend(1, torch.zeros(2, 3, 2), 4, True)
    assert extended.shape == (2, 6, 2)
    assert extended[:, :3].eq(fresh[1]).all() and extended[:, 3:].eq(0).all()


def test_a_centred_convolution_sees_zeros_past_every_row() -> None:
    memory = ClipMemory(torch.tensor([2, 3]), 3, None)
    extended = memory.extend(0, torch.ones(2, 3, 1), 3, False)
    assert extended[..., 0].tolist() == [[0, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
