"""What a configuration's device and dtype are on this machine."""

import re

import torch

from oasr_backend.errors import ConfigError
from oasr_backend.utils.host import has_bfloat16_units

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_DEVICE = re.compile(r"auto|cpu|cuda(?::\d+)?")


def device_named(name: str) -> torch.device:
    """Raises ConfigError for a device that is not there."""
    if not _DEVICE.fullmatch(name):
        raise ConfigError(f"device is {name!r}; use auto, cpu, cuda or cuda:N")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {name!r} but this machine has {torch.cuda.device_count()} CUDA devices; use auto")
    return torch.device(name)


def dtype_on(device: torch.device, wanted: str | torch.dtype) -> torch.dtype:
    """Raises ConfigError for a dtype that the device has no fast kernels for."""
    if wanted != "auto":
        dtype = wanted if isinstance(wanted, torch.dtype) else DTYPES[wanted]
        if dtype is torch.float16 and device.type == "cpu":
            raise ConfigError("dtype is 'float16' on a CPU, which has no fast kernels for it; use auto or float32")
        return dtype
    if device.type == "cuda":
        return torch.float16
    return torch.bfloat16 if multiplies_bfloat16() else torch.float32


def multiplies_bfloat16() -> bool:
    """Whether the processor can, and the library makes it."""
    return has_bfloat16_units() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
