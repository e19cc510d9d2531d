"""Tensors by name from a safetensors file."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from oasr_backend.errors import CheckpointError


def read_safetensors(file: Path) -> dict[str, Tensor]:
    """Raises CheckpointError for a file that is damaged or cannot be read."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read as safetensors ({type(error).__name__})") from error
