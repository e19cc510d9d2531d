"""Large state tensors."""

import math

import numpy as np
import torch
from torch import Tensor


def lazy_zeros(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that on CPU take memory only where they are written: the system maps pages when they are touched.

    `torch.zeros` would touch all of them, which for a page pool is gigabytes at every start.
    """
    if device.type != "cpu" or 0 in shape:
        return torch.zeros(*shape, dtype=dtype, device=device)
    raw = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(*shape)
