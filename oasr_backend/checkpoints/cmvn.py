"""Global mean and variance statistics, as JSON or as Kaldi text."""

import json
from pathlib import Path

import torch
from torch import Tensor

from oasr_backend.errors import CheckpointError


def read_cmvn(file: Path, dim: int, is_json: bool) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation, [dim] float32 each: m = s1 / n, 1 / sqrt(max(s2 / n - m², 1e-20)).

    Raises CheckpointError for a file that cannot be read as it is declared, or of another number of bins.
    """
    kind = "JSON statistics (mean_stat, var_stat, frame_num)" if is_json else "Kaldi text statistics ([ ... ])"
    try:
        text = file.read_text(encoding="utf-8")
        sums, squares, count = _from_json(text) if is_json else _from_kaldi(text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file} cannot be read as {kind}: {type(error).__name__}") from error
    if sums.shape != (dim,) or squares.shape != (dim,) or not count > 0:
        shape = "x".join(map(str, sums.shape)) or "no"
        raise CheckpointError(f"{file} holds statistics of {shape} bins over {count:g} frames; expected {dim} bins")
    if not (sums.isfinite().all() and squares.isfinite().all()):
        raise CheckpointError(f"{file} holds statistics that are not finite; compute them again")
    mean = sums / count
    variance = (squares / count - mean.square()).clamp_min(1e-20)
    return mean.float(), variance.rsqrt().float()


def _from_json(text: str) -> tuple[Tensor, Tensor, float]:
    stats = json.loads(text)
    sums = torch.tensor(stats["mean_stat"], dtype=torch.float64)
    return sums, torch.tensor(stats["var_stat"], dtype=torch.float64), float(stats["frame_num"])


def _from_kaldi(text: str) -> tuple[Tensor, Tensor, float]:
    """A 2 x (bins + 1) matrix: sums and the count, then sums of squares and a zero."""
    fields = text.split()
    if not fields or fields[0] != "[" or fields[-1] != "]":
        raise ValueError("no matrix in brackets")
    values = torch.tensor([float(field) for field in fields[1:-1]], dtype=torch.float64)
    if len(values) % 2 or len(values) < 4:
        raise ValueError("not two rows")
    first, second = values.view(2, -1)
    return first[:-1], second[:-1], float(first[-1])
