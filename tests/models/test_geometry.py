"""Frame arithmetic of the front ends."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.models.geometry import FRONT_ENDS

FORMULAS: dict[str, Callable[[int], int]] = {
    "conv2d": lambda t: ((t - 1) // 2 - 1) // 2,
    "conv2d6": lambda t: ((t - 1) // 2 - 2) // 3,
    "conv2d8": lambda t: (((t - 1) // 2 - 1) // 2 - 1) // 2,
}
names = st.sampled_from(sorted(FORMULAS))


@pytest.mark.parametrize(
    ("name", "window", "stride", "right_context", "rate"),
    [("conv2d", 67, 64, 6, 4), ("conv2d6", 101, 96, 10, 6), ("conv2d8", 135, 128, 14, 8)],
)
def test_a_chunk_of_16_frames(name: str, window: int, stride: int, right_context: int, rate: int) -> None:
    geometry = FRONT_ENDS[name]
    assert (geometry.window(16), geometry.stride(16)) == (window, stride)
    assert (geometry.right_context, geometry.min_frames, geometry.rate) == (right_context, right_context + 1, rate)


@given(names, st.integers(0, 3000))
def test_frames_out_is_the_front_ends_formula(name: str, frames: int) -> None:
    assert FRONT_ENDS[name].frames_out(frames) == max(0, FORMULAS[name](frames))


@given(names, st.integers(1, 64))
def test_a_window_is_the_least_that_yields_its_chunk(name: str, chunk: int) -> None:
    geometry = FRONT_ENDS[name]
    assert geometry.frames_out(geometry.window(chunk)) == chunk
    assert geometry.frames_out(geometry.window(chunk) - 1) == chunk - 1


@given(names, st.integers(1, 20), st.integers(0, 1200))
def test_chunks_yield_as_many_frames_as_the_whole(name: str, chunk: int, frames: int) -> None:
    geometry = FRONT_ENDS[name]
    left, out = frames, 0
    while left >= geometry.min_frames:
        out += geometry.frames_out(min(left, geometry.window(chunk)))
        left -= geometry.stride(chunk)
    assert out == geometry.frames_out(frames)
