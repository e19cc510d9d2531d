"""The native bundle: safetensors, a JSON configuration with a format version, tokenizer files."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, int8

from oasr_backend.checkpoints.base import (
    Checkpoint,
    CheckpointFormat,
    TokenizerSpec,
    register_checkpoint_format,
)
from oasr_backend.checkpoints.safetensors_file import read_safetensors
from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.config import AttentionConfig, ConvolutionConfig, DecoderConfig, EncoderConfig, WenetConfig
from oasr_backend.models.geometry import FRONT_ENDS
from oasr_backend.quantization.config import QuantizationConfig
from oasr_backend.quantization.int8_weight import Int8Weight
from oasr_backend.quantization.rule import QuantizationRule, module_of

FORMAT_VERSION = 1
CONFIG_NAME = "oasr_config.json"
WEIGHTS_NAME = "model.safetensors"
_TOKENIZER_DIR = "tokenizer"
_CMVN_PREFIX = "cmvn."
_SCALE_SUFFIX = "_scale"


def save_bundle(checkpoint: Checkpoint, path: Path) -> None:
    """Writes `checkpoint` as a bundle into the new directory `path`, its weights as its quantization has them.

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
    tensors = _rounded(checkpoint.state, QuantizationRule.of(checkpoint.quantization))
    for name, statistic in (("mean", checkpoint.cmvn_mean), ("istd", checkpoint.cmvn_istd)):
        if statistic is not None:
            tensors[_CMVN_PREFIX + name] = statistic.clone()
    save_file(tensors, path / WEIGHTS_NAME)
    # safetensors writes for its owner alone, while servers often run as another user.
    (path / WEIGHTS_NAME).chmod(0o644)
    model = asdict(checkpoint.model)
    # The geometry follows from the front end's name.
    del model["encoder"]["geometry"]
    document: dict[str, Any] = {
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
    if checkpoint.quantization is not None:
        document["quantization"] = asdict(checkpoint.quantization)
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
        quantization = QuantizationConfig.parse(document.get("quantization"))
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(f"{path / CONFIG_NAME} is damaged ({error}); convert the checkpoint again") from error
    state = _restored(read_safetensors(path / WEIGHTS_NAME), path / WEIGHTS_NAME)
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
        quantization=quantization,
    )


def _rounded(state: Mapping[str, Tensor], rule: QuantizationRule) -> dict[str, Tensor]:
    """A copy of `state`, with what `rule` covers as int8 and with its scales beside it."""
    tensors = {}
    for name, tensor in state.items():
        module = module_of(name)
        if module is not None and rule.covers(module):
            weight = Int8Weight.of(tensor)
            tensors[name], tensors[name + _SCALE_SUFFIX] = weight.values.contiguous(), weight.scales
        else:
            tensors[name] = tensor.clone().contiguous()
    return tensors


def _restored(state: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """Floating point again: a layer rounds to the same numbers what `_rounded` rounded."""
    tensors = dict(state)
    for name, values in state.items():
        if values.dtype is int8:
            scales = tensors.pop(name + _SCALE_SUFFIX, None)
            if scales is None or scales.shape != values.shape[:1]:
                raise CheckpointError(f"{file} has no scale for each row of {name}; quantize the checkpoint again")
            tensors[name] = Int8Weight(values, scales).restored()
    return tensors


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
