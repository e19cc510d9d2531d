"""A loaded checkpoint, and the registry of formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.config import ModelConfig


@dataclass(frozen=True)
class TokenizerSpec:
    """Which tokenizer to build and from what: `kind` names a registered one."""

    kind: str
    unit_table: Path
    special_tokens: Mapping[str, int]
    bpe_model: Path | None = None
    connect_symbol: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """All that a directory holds, in the engine's terms. `cmvn_mean` and `cmvn_istd` are [input_dim] or None."""

    path: Path
    format: str
    weights_name: str
    model: ModelConfig
    features: FeatureSpec
    tokenizer: TokenizerSpec
    cmvn_mean: Tensor | None
    cmvn_istd: Tensor | None
    state: Mapping[str, Tensor]


@dataclass(frozen=True)
class CheckpointFormat:
    """A format: `matches` looks at a directory, `load` reads it."""

    name: str
    matches: Callable[[Path], bool]
    load: Callable[[Path], Checkpoint]


FORMATS: dict[str, CheckpointFormat] = {}


def register_checkpoint_format(checkpoint_format: CheckpointFormat) -> CheckpointFormat:
    FORMATS[checkpoint_format.name] = checkpoint_format
    return checkpoint_format


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint directory in whatever registered format it is.

    Raises CheckpointError when it is missing, of no known format, or wrong in itself.
    """
    if not path.is_dir():
        raise CheckpointError(f"checkpoint directory {path} does not exist; name a directory with train.yaml in it")
    for checkpoint_format in FORMATS.values():
        if checkpoint_format.matches(path):
            return checkpoint_format.load(path)
    raise CheckpointError(
        f"{path} is no checkpoint of a known format ({', '.join(FORMATS)}); "
        "a WeNet checkpoint holds train.yaml, final.pt and units.txt"
    )
