"""Weights by name, every one accounted for."""

import pytest
import torch

from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.errors import CheckpointError


def test_a_weight_is_handed_out_as_float32() -> None:
    reader = WeightReader({"a": torch.ones(2, 3, dtype=torch.float16)}, "final.pt")
    tensor = reader.take("a", 2, 3)
    assert tensor.dtype is torch.float32 and tensor.eq(1).all()
    assert reader.has("a") and not reader.has("b")
    reader.close()


def test_all_differences_are_listed_at_once() -> None:
    reader = WeightReader(
        {
            "wrong": torch.ones(2),
            "whole": torch.ones(2, dtype=torch.int64),
            "extra": torch.ones(4, 5),
            "diverged": torch.tensor([1.0, float("nan")]),
            "endless": torch.tensor([float("inf"), 1.0]),
            "large": torch.full((4,), 3e38),
        },
        "dir/final.pt",
    )
    assert reader.take("missing", 3).shape == (3,)
    assert reader.take("wrong", 9).shape == (9,)
    reader.take("whole", 2)
    reader.take("diverged", 2)
    reader.take("endless", 2)
    # Finite, though their sum is not.
    assert reader.take("large", 4).isfinite().all()
    with pytest.raises(CheckpointError) as caught:
        reader.close()
    text = str(caught.value)
    for part in (
        "dir/final.pt",
        "missing: missing [3]",
        "wrong is [2], expected [9]",
        "whole holds torch.int64",
        "diverged holds numbers that are not finite, endless holds numbers that are not finite; not part",
        "not part of this architecture: extra [4, 5]",
    ):
        assert part in text


def test_ignored_weights_are_accounted_for() -> None:
    reader = WeightReader({"x.pe": torch.ones(1), "x.w": torch.ones(1)}, "final.pt")
    reader.take("x.w", 1)
    reader.ignore(name for name in reader.names("x.") if name.endswith(".pe"))
    reader.close()


def test_a_long_list_is_cut_and_counted() -> None:
    reader = WeightReader({f"extra.{index:02}": torch.ones(1) for index in range(30)}, "final.pt")
    with pytest.raises(CheckpointError, match=r"extra\.11 \[1\], and 18 more"):
        reader.close()
