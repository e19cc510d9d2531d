"""The native bundle: safetensors, a JSON configuration with a format version, tokenizer files."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from oasr_backend.checkpoints.base import (
    Checkpoint,
    CheckpointFormat,
    TokenizerSpec,
    register_checkpoint_format,
)
from oasr_backend.checkpoints.safetensors_file import read_safetensors
from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.config import AttentionConfig, ConvolutionConfig, DecoderConfig, EncoderConfig, WenetConfig
from oasr_backend.models.geometry import FRONT_ENDS

FORMAT_VERSION = 1
CONFIG_NAME = "oasr_config.json"
WEIGHTS_NAME = "model.safetensors"
_TOKENIZER_DIR = "tokenizer"
_CMVN_PREFIX = "cmvn."


def save_bundle(checkpoint: Checkpoint, path: Path) -> None:
    """Writes `checkpoint` as a bundle into the new directory `path`.

    Raises CheckpointError when the directory holds something already or the model is of another family.
    """
    if not isinstance(checkpoint.model, WenetConfig):
        raise CheckpointError(f"architecture {checkpoint.model.architecture!r} has no native bundle; serve it as it is")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CheckpointError(f"{path} exists and is not empty; name a new directory")
    tokenizer_dir = path / _TOKENIZER_DIR
    tokenizer_dir.mkdir(parents=True, exist_ok=True)
    tokenizer = checkpoint.tokenizer
    shutil.copyfile(tokenizer.unit_table, tokenizer_dir / "units.txt")
    if tokenizer.bpe_model is not None:
        shutil.copyfile(tokenizer.bpe_model, tokenizer_dir / "bpe.model")
    tensors = {name: tensor.clone().contiguous() for name, tensor in checkpoint.state.items()}
    for name, statistic in (("mean", checkpoint.cmvn_mean), ("istd", checkpoint.cmvn_istd)):
        if statistic is not None:
            tensors[_CMVN_PREFIX + name] = statistic.clone()
    save_file(tensors, path / WEIGHTS_NAME)
    # safetensors writes for its owner alone, while servers often run as another user.
    (path / WEIGHTS_NAME).chmod(0o644)
    model = asdict(checkpoint.model)
    # The geometry follows from the front end's name.
    del model["encoder"]["geometry"]
    document = {
        "format_version": FORMAT_VERSION,
        "model": model,
        "features": asdict(checkpoint.features),
        "tokenizer": {
            "kind": tokenizer.kind,
            "special_tokens": dict(tokenizer.special_tokens),
            "connect_symbol": tokenizer.connect_symbol,
            "bpe_model": tokenizer.bpe_model is not None,
        },
    }
    (path / CONFIG_NAME).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def load_bundle(path: Path, *, unit_table: Path | None = None) -> Checkpoint:
    """Reads what `save_bundle` wrote, with the units of `unit_table` where it is given.

    Raises CheckpointError for another version or a damaged file.
    """
    document = _read_config(path / CONFIG_NAME)
    try:
        model, features, tokenizer = (
            _model(document["model"]),
            FeatureSpec(**document["features"]),
            document["tokenizer"],
        )
        spec = TokenizerSpec(
            kind=tokenizer["kind"],
            unit_table=unit_table or path / _TOKENIZER_DIR / "units.txt",
            special_tokens=tokenizer["special_tokens"],
            bpe_model=path / _TOKENIZER_DIR / "bpe.model" if tokenizer["bpe_model"] else None,
            connect_symbol=tokenizer["connect_symbol"],
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path / CONFIG_NAME} is damaged ({error}); convert the checkpoint again") from error
    state = read_safetensors(path / WEIGHTS_NAME)
    return Checkpoint(
        path=path,
        format="oasr",
        weights_name=WEIGHTS_NAME,
        model=model,
        features=features,
        tokenizer=spec,
        cmvn_mean=state.pop(_CMVN_PREFIX + "mean", None),
        cmvn_istd=state.pop(_CMVN_PREFIX + "istd", None),
        state=state,
    )


def _read_config(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read as JSON ({type(error).__name__})") from error
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{file} has format_version {version!r}; this release reads {FORMAT_VERSION}: convert the checkpoint again"
        )
    return document


def _model(values: dict[str, Any]) -> WenetConfig:
    encoder = dict(values["encoder"])
    convolution = encoder.pop("convolution")
    return WenetConfig(
        **{
            **values,
            "encoder": EncoderConfig(
                **{
                    **encoder,
                    "attention": AttentionConfig(**encoder["attention"]),
                    "convolution": None if convolution is None else ConvolutionConfig(**convolution),
                    "geometry": FRONT_ENDS[encoder["front_end"]],
                }
            ),
            "decoder": DecoderConfig(**values["decoder"]),
        }
    )


BUNDLE = register_checkpoint_format(
    CheckpointFormat("oasr", lambda path: (path / CONFIG_NAME).is_file(), load_bundle, frozenset({"unit_table"}))
)
