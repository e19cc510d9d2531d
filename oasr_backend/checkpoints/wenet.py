"""WeNet checkpoint directories of three generations: train.yaml, final.pt, a unit table, CMVN, sentencepiece model."""

import pickle
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from oasr_backend.checkpoints.base import Checkpoint, CheckpointFormat, TokenizerSpec, register_checkpoint_format
from oasr_backend.checkpoints.cmvn import read_cmvn
from oasr_backend.checkpoints.safetensors_file import read_safetensors
from oasr_backend.checkpoints.wenet_model import model_config
from oasr_backend.checkpoints.yaml_fields import ADVICE, Fields
from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec

WEIGHTS_NAME = "final.pt"
_COMMON_FEATURE_OPTIONS = ("num_mel_bins", "frame_length", "frame_shift", "dither", "window_type")
_FEATURE_OPTIONS = {
    "fbank": _COMMON_FEATURE_OPTIONS,
    "mfcc": (*_COMMON_FEATURE_OPTIONS, "num_ceps", "low_freq", "high_freq"),
}
_WEIGHTS_SUFFIXES = (".pt", ".safetensors")
_UNIT_TABLES = ("units.txt", "words.txt")


def load_wenet(path: Path, *, weights_name: str = WEIGHTS_NAME, unit_table: Path | None = None) -> Checkpoint:
    """Reads a WeNet directory; paths inside train.yaml are training-time ones, so files are looked up by name here.

    `weights_name` is a .pt or .safetensors file inside it, `unit_table` a file anywhere instead of its own.
    """
    config = Fields(_read_yaml(path / "train.yaml"), f"{path.name}/train.yaml")
    config.choice("model", "asr_model", ("asr_model",), ADVICE)
    config.choice("ctc", "ctc", ("ctc",), ADVICE)
    if "predictor" in config or "joint" in config:
        raise CheckpointError("train.yaml has a predictor and a joint: transducers are not supported; use a U2 model")
    unit_table = unit_table or _unit_table(path)
    state = _read_state(_weights_file(path, weights_name))
    model = model_config(config)
    mean, istd = _cmvn(path, config, model.encoder.input_dim, state)
    return Checkpoint(
        path=path,
        format="wenet",
        weights_name=weights_name,
        model=model,
        features=_feature_spec(config, model.encoder.input_dim),
        tokenizer=_tokenizer_spec(path, config, unit_table),
        cmvn_mean=mean,
        cmvn_istd=istd,
        state=state,
    )


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path}: cannot be read as YAML ({type(error).__name__})") from error


def _weights_file(path: Path, name: str) -> Path:
    # By the name alone: in a cache the file itself is a link to somewhere else.
    inside = Path(name)
    if inside.is_absolute() or ".." in inside.parts:
        raise CheckpointError(f"checkpoint_name is {name!r}, which leaves the checkpoint; name a file inside {path}")
    if inside.suffix not in _WEIGHTS_SUFFIXES:
        raise CheckpointError(f"checkpoint_name is {name!r}; name a {' or '.join(_WEIGHTS_SUFFIXES)} file")
    if not (path / inside).is_file():
        found = sorted(file.name for file in path.iterdir() if file.suffix in _WEIGHTS_SUFFIXES and file.is_file())
        there = f"name one of {', '.join(found)} as checkpoint_name, or " if found else ""
        raise CheckpointError(f"{path} holds no {name}; {there}copy the averaged checkpoint there under that name")
    return path / inside


def _read_state(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    try:
        state = _torch_load(path)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} cannot be loaded as plain weights ({type(error).__name__}); "
            "it must be a state_dict saved by torch.save, with nothing else pickled in it"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise CheckpointError(f"{path} is not a flat mapping of names to tensors; save model.state_dict()")
    return state


def _torch_load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        # Files older than torch 1.6 are no archives and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True)


def _unit_table(path: Path) -> Path:
    for name in _UNIT_TABLES:
        if (path / name).is_file():
            return path / name
    raise CheckpointError(f"{path} holds no unit table; expected {' or '.join(_UNIT_TABLES)}")


def _feature_spec(config: Fields, input_dim: int) -> FeatureSpec:
    """Features as the three generations wrote them: `collate_conf` (v1), else `dataset_conf`."""
    if "collate_conf" in config:
        spec = _first_generation(config.sub("collate_conf").sub("feature_extraction_conf"))
    else:
        spec = _later_generations(config.sub("dataset_conf"))
    if spec.dim != input_dim:
        raise CheckpointError(
            f"train.yaml: input_dim is {input_dim} but its features have {spec.dim} numbers a frame "
            f"({'num_ceps' if spec.kind == 'mfcc' else 'num_mel_bins'}); they must agree"
        )
    return spec


def _first_generation(options: Fields) -> FeatureSpec:
    kind = options.choice("feature_type", "fbank", ("fbank", "mfcc"), ADVICE)
    if options.flag("using_pitch", False):
        raise CheckpointError(f"feature_extraction_conf: using_pitch: True is not supported; {ADVICE}")
    return FeatureSpec(
        kind=kind,
        num_mel_bins=options.integer("mel_bins", 80),
        num_ceps=options.integer("num_ceps", 13),
        frame_length_ms=options.number("frame_length", 25),
        frame_shift_ms=options.number("frame_shift", 10),
    )


def _later_generations(dataset: Fields) -> FeatureSpec:
    if "log_mel_spectrogram_conf" in dataset:
        raise CheckpointError(f"dataset_conf: log_mel_spectrogram_conf is not supported (supported: fbank); {ADVICE}")
    kind = dataset.choice("feats_type", "mfcc" if "mfcc_conf" in dataset else "fbank", ("fbank", "mfcc"), ADVICE)
    options = dataset.sub(f"{kind}_conf")
    options.refuse_others(_FEATURE_OPTIONS[kind])
    options.choice("window_type", "povey", ("povey",), ADVICE)
    return FeatureSpec(
        kind=kind,
        sample_rate=dataset.sub("resample_conf").integer("resample_rate", 16000),
        num_mel_bins=options.integer("num_mel_bins", 23),
        num_ceps=options.integer("num_ceps", 40 if kind == "mfcc" else 13),
        frame_length_ms=options.number("frame_length", 25),
        frame_shift_ms=options.number("frame_shift", 10),
        low_freq=options.number("low_freq", 20.0),
        high_freq=options.number("high_freq", 0.0),
    )


def _tokenizer_spec(path: Path, config: Fields, unit_table: Path) -> TokenizerSpec:
    """The later generations name their tokenizer; before, `▁` in a unit marks the start of a word in any table."""
    options = config.sub("tokenizer_conf")
    bpe = options.raw("bpe_path")
    bpe_model = path / Path(str(bpe)).name if bpe else next(iter(sorted(path.glob("*.model"))), None)
    return TokenizerSpec(
        kind=config.choice("tokenizer", "char", ("char", "bpe"), ADVICE),
        unit_table=unit_table,
        special_tokens=options.sub("special_tokens").integers(),
        bpe_model=bpe_model if bpe_model is not None and bpe_model.is_file() else None,
        connect_symbol=str(options.raw("connect_symbol") or ""),
    )


def _cmvn(path: Path, config: Fields, dim: int, state: dict[str, Tensor]) -> tuple[Tensor | None, Tensor | None]:
    """Statistics from the file that train.yaml names; from the weights alone where the file is missing."""
    if "cmvn_file" in config:
        # The first two generations write these two at the top; raw_wav false went with Kaldi's text form.
        named, is_json = config.raw("cmvn_file"), config.flag("is_json_cmvn", True)
    elif config.raw("cmvn") is not None:
        config.choice("cmvn", None, ("global_cmvn",), ADVICE)
        options = config.sub("cmvn_conf")
        named, is_json = options.raw("cmvn_file", "global_cmvn"), options.flag("is_json_cmvn", True)
    else:
        named, is_json = None, True
    if not named:
        return None, None
    file = path / Path(str(named)).name
    if not file.is_file():
        file = path / "global_cmvn"
    if not file.is_file() and "encoder.global_cmvn.mean" in state:
        return None, None
    return read_cmvn(file, dim, is_json)


WENET = register_checkpoint_format(
    CheckpointFormat(
        "wenet",
        lambda path: (path / "train.yaml").is_file(),
        load_wenet,
        frozenset({"weights_name", "unit_table"}),
    )
)
