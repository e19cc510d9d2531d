"""A loaded checkpoint, and the registry of formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.config import ModelConfig
from oasr_backend.quantization.config import QuantizationConfig


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
    quantization: QuantizationConfig | None = None
    """The scheme that it was written with, or is to be served with; None: the weights as they are."""


@dataclass(frozen=True)
class CheckpointFormat:
    """A format: `matches` looks at a directory, `load` reads it.

    `load` takes the directory and, by name, those of `choices` that the user makes: `weights_name`, a file inside
    the directory, and `unit_table`, a file anywhere, each instead of the format's own.
    """

    name: str
    matches: Callable[[Path], bool]
    load: Callable[..., Checkpoint]
    choices: frozenset[str] = frozenset()


FORMATS: dict[str, CheckpointFormat] = {}


def register_checkpoint_format(checkpoint_format: CheckpointFormat) -> CheckpointFormat:
    FORMATS[checkpoint_format.name] = checkpoint_format
    return checkpoint_format


def load_checkpoint(path: Path, *, weights_name: str | None = None, unit_table: Path | None = None) -> Checkpoint:
    """Reads a checkpoint directory in whatever registered format it is, with other weights or units where named.

    Raises CheckpointError when it is missing, of no known format, or wrong in itself.
    """
    if not path.is_dir():
        raise CheckpointError(f"checkpoint directory {path} does not exist; name a directory with train.yaml in it")
    if unit_table is not None and not unit_table.is_file():
        raise CheckpointError(f"unit_table {unit_table} is no file; name one, or leave it out")
    for checkpoint_format in FORMATS.values():
        if checkpoint_format.matches(path):
            return _load(checkpoint_format, path, weights_name, unit_table)
    raise CheckpointError(
        f"{path} is no checkpoint of a known format ({', '.join(FORMATS)}); "
        "a WeNet checkpoint holds train.yaml, final.pt and units.txt"
    )


def _load(
    checkpoint_format: CheckpointFormat, path: Path, weights_name: str | None, unit_table: Path | None
) -> Checkpoint:
    name, choices = checkpoint_format.name, checkpoint_format.choices
    if weights_name is not None and "weights_name" not in choices:
        raise CheckpointError(
            f"checkpoint_name is {weights_name!r}, but a checkpoint of format {name!r} has one weights file; "
            "leave it out"
        )
    if unit_table is not None and "unit_table" not in choices:
        raise CheckpointError(
            f"unit_table is {str(unit_table)!r}, but a checkpoint of format {name!r} takes no other than its own; "
            "leave it out"
        )
    asked = {"weights_name": weights_name, "unit_table": unit_table}
    return checkpoint_format.load(path, **{choice: value for choice, value in asked.items() if value is not None})
