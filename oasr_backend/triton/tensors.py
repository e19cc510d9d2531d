"""Samples out of a Triton request, as arrays of our own."""

from typing import Any

import numpy as np

from oasr_backend.triton.errors import invalid_input


def read_rows(
    wav: np.ndarray | None,
    pcm: np.ndarray | None,
    lengths: np.ndarray | None,
    encoded: np.ndarray | None = None,
) -> list[np.ndarray]:
    """One copy of samples [n] a row, cut to its true length.

    `wav` [B, N] float32, `pcm` [B, N] int16, `encoded` [B, N] uint8, exactly one of them; `lengths` [B, 1] int32 or
    None. Raises Refusal.
    """
    given = {name: array for name, array in (("WAV", wav), ("PCM", pcm), ("BYTES", encoded)) if array is not None}
    if len(given) > 1:
        both = " and ".join(given)
        raise invalid_input(f"both {both} are given; send the samples once, as float32 WAV or as int16 PCM")
    if not given:
        raise invalid_input("neither WAV nor PCM is given; send samples, an empty [1, 0] array where there are none")
    (samples,) = given.values()
    if samples.ndim != 2:
        raise invalid_input(f"samples have shape {list(samples.shape)}; expected [batch, samples]")
    rows, width = samples.shape
    if lengths is None:
        return [row.copy() for row in samples]
    flat = lengths.reshape(-1)
    if flat.size != rows:
        raise invalid_input(f"WAV_LENS holds {flat.size} lengths for {rows} rows of samples; send one a row")
    for length in flat.tolist():
        if not 0 <= length <= width:
            raise invalid_input(f"WAV_LENS is {length} but the row holds {width} samples; send the true length")
    return [row[:length].copy() for row, length in zip(samples, flat.tolist())]


def input_array(pb_utils: Any, request: Any, name: str) -> np.ndarray | None:
    """The array of an input tensor, or None where the request has none. It dies with the request."""
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return None if tensor is None else tensor.as_numpy()
