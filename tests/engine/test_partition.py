"""How a batch is cut into forward passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.engine.batching import BatchLimits
from oasr_backend.engine.partition import PARTITIONS, count, frames, packing, partition_policy
from oasr_backend.errors import ConfigError


@pytest.mark.parametrize(
    ("lengths", "limits", "parts"),
    [
        ([3, 1, 2], BatchLimits(3), [[0, 1, 2]]),
        ([5, 1, 4, 2, 3], BatchLimits(2), [[1], [3, 4], [0, 2]]),
        ([5, 1, 4, 2, 3], BatchLimits(4, preferred=(2, 4)), [[1, 2, 3, 4], [0]]),
        ([5, 1, 4], BatchLimits(4, preferred=(2,)), [[1, 2], [0]]),
        ([], BatchLimits(4), []),
    ],
)
def test_by_count(lengths: list[int], limits: BatchLimits, parts: list[list[int]]) -> None:
    assert count(lengths, limits) == parts


def test_by_padded_frames() -> None:
    assert frames([10, 50, 20, 60], BatchLimits(4, 100)) == [[0, 2], [1], [3]]
    assert frames([10, 50, 20, 60], BatchLimits(4)) == [[0, 1, 2, 3]]


def test_by_packed_frames() -> None:
    limits = BatchLimits(4, max_packed_frames=30, subsampling=4)
    assert packing([80, 40, 44, 3, 200], limits) == [[1, 2, 3], [0], [4]]


@given(
    st.lists(st.integers(0, 500), max_size=20),
    st.integers(1, 6),
    st.integers(1, 1500),
    st.sampled_from([(), (1, 2), (2, 4)]),
    st.sampled_from(sorted(PARTITIONS)),
)
def test_every_clip_is_in_one_part(
    lengths: list[int], rows: int, most: int, preferred: tuple[int, ...], name: str
) -> None:
    limits = BatchLimits(rows, most, preferred=preferred, max_packed_frames=most)
    parts = PARTITIONS[name](lengths, limits)
    assert sorted(index for part in parts for index in part) == list(range(len(lengths)))
    for part in parts:
        assert part == sorted(part) and part
        held = [lengths[index] for index in part]
        if name == "frames":
            assert len(part) <= rows and (len(part) == 1 or max(held) * len(part) <= most)
        if name == "count":
            assert len(part) <= rows
        if name == "packing":
            assert len(part) == 1 or sum(max(1, length // 4) for length in held) <= most


def test_a_partition_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition_policy 'none' is not supported; choose one of: count, frames"):
        partition_policy("none")
