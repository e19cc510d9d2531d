"""WeNet checkpoint directories: train.yaml, final.pt, units.txt, global_cmvn, optional sentencepiece model."""

import json
import pickle
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from oasr_backend.checkpoints.base import Checkpoint, CheckpointFormat, TokenizerSpec, register_checkpoint_format
from oasr_backend.checkpoints.yaml_fields import Fields
from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.config import DecoderConfig, EncoderConfig, ModelConfig
from oasr_backend.models.geometry import FRONT_ENDS

_ADVICE = "use a checkpoint trained with a supported value"
_UNIT_TABLES = ("units.txt", "words.txt")

# Encoder options that change the maths and that are only supported at these values.
_FIXED_ENCODER_OPTIONS: dict[str, Any] = {
    "normalize_before": True,
    "use_cnn_module": True,
    "macaron_style": True,
    "final_norm": True,
    "concat_after": False,
    "query_bias": True,
    "key_bias": True,
    "value_bias": True,
    "conv_bias": True,
    "mlp_bias": True,
    "conv_inner_factor": 2,
    "gradient_checkpointing": False,
    "n_kv_head": None,
    "head_dim": None,
    "mlp_type": "position_wise_feed_forward",
    "layer_norm_type": "layer_norm",
    "norm_eps": 1e-5,
    "use_sdpa": False,
}


def load_wenet(path: Path) -> Checkpoint:
    """Reads a WeNet directory; paths inside train.yaml are training-time ones, so files are looked up by name here."""
    config = Fields(_read_yaml(path / "train.yaml"), f"{path.name}/train.yaml")
    config.choice("model", "asr_model", ("asr_model",), _ADVICE)
    config.choice("ctc", "ctc", ("ctc",), _ADVICE)
    unit_table = _unit_table(path)
    model = _model_config(config)
    mean, istd = _cmvn(path, config, model.encoder.input_dim)
    return Checkpoint(
        path=path,
        format="wenet",
        model=model,
        features=_feature_spec(config, model.encoder.input_dim),
        tokenizer=_tokenizer_spec(path, config, unit_table),
        cmvn_mean=mean,
        cmvn_istd=istd,
        state=_read_state(path / "final.pt"),
    )


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path}: cannot be read as YAML ({type(error).__name__})") from error


def _read_state(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path.parent} holds no {path.name}; copy the averaged checkpoint there under that name")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} cannot be loaded as plain weights ({type(error).__name__}); "
            "it must be a state_dict saved by torch.save, with nothing else pickled in it"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{path} is not a flat mapping of names to tensors; save model.state_dict()")
    return state


def _unit_table(path: Path) -> Path:
    for name in _UNIT_TABLES:
        if (path / name).is_file():
            return path / name
    raise CheckpointError(f"{path} holds no unit table; expected {' or '.join(_UNIT_TABLES)}")


def _model_config(config: Fields) -> ModelConfig:
    vocab_size = config.integer("output_dim")
    special = config.sub("tokenizer_conf").sub("special_tokens")
    return ModelConfig(
        architecture=config.choice("encoder", "conformer", ("conformer",), _ADVICE),
        vocab_size=vocab_size,
        blank_id=config.sub("ctc_conf").integer("ctc_blank_id", 0, minimum=0),
        sos_id=special.integer("<sos>", vocab_size - 1, minimum=0),
        eos_id=special.integer("<eos>", vocab_size - 1, minimum=0),
        encoder=_encoder_config(config),
        decoder=_decoder_config(config),
        streaming=_trained_for_chunks(config.sub("encoder_conf")),
    )


def _trained_for_chunks(encoder: Fields) -> bool:
    return encoder.flag("use_dynamic_chunk", False) or encoder.integer("static_chunk_size", 0, minimum=0) > 0


def _encoder_config(config: Fields) -> EncoderConfig:
    encoder = config.sub("encoder_conf")
    for name, value in _FIXED_ENCODER_OPTIONS.items():
        if encoder.raw(name, value) != value:
            raise CheckpointError(
                f"encoder_conf: {name}: {encoder.raw(name)!r} is not supported (supported: {value!r}); {_ADVICE}"
            )
    encoder.choice("pos_enc_layer_type", "rel_pos", ("rel_pos",), _ADVICE)
    encoder.choice("selfattention_layer_type", "rel_selfattn", ("rel_selfattn",), _ADVICE)
    encoder.choice("activation_type", "swish", ("swish",), _ADVICE)
    if not encoder.flag("causal", False):
        raise CheckpointError(f"encoder_conf: causal: False is not supported (supported: True); {_ADVICE}")
    front_end = encoder.choice("input_layer", "conv2d", ("conv2d",), _ADVICE)
    dim = encoder.integer("output_size", 256)
    heads = encoder.integer("attention_heads", 4)
    if dim % heads:
        raise CheckpointError(f"encoder_conf: output_size {dim} is not a multiple of attention_heads {heads}")
    return EncoderConfig(
        input_dim=config.integer("input_dim", 80),
        dim=dim,
        layers=encoder.integer("num_blocks", 6),
        heads=heads,
        ffn_dim=encoder.integer("linear_units", 2048),
        kernel=encoder.integer("cnn_module_kernel", 15),
        causal=True,
        conv_norm=encoder.choice("cnn_module_norm", "batch_norm", ("batch_norm", "layer_norm"), _ADVICE),
        front_end=front_end,
        geometry=FRONT_ENDS[front_end],
    )


def _decoder_config(config: Fields) -> DecoderConfig:
    kind = config.choice("decoder", "bitransformer", ("transformer", "bitransformer"), _ADVICE)
    decoder = config.sub("decoder_conf")
    return DecoderConfig(
        heads=decoder.integer("attention_heads", 4),
        ffn_dim=decoder.integer("linear_units", 2048),
        layers=decoder.integer("num_blocks", 6),
        right_layers=decoder.integer("r_num_blocks", 0, minimum=0) if kind == "bitransformer" else 0,
        reverse_weight=config.sub("model_conf").number("reverse_weight", 0.0),
    )


def _feature_spec(config: Fields, input_dim: int) -> FeatureSpec:
    dataset = config.sub("dataset_conf")
    for name in ("mfcc_conf", "log_mel_spectrogram_conf"):
        if name in dataset:
            raise CheckpointError(f"dataset_conf: {name} is not supported (supported: fbank_conf); {_ADVICE}")
    fbank = dataset.sub("fbank_conf")
    spec = FeatureSpec(
        sample_rate=dataset.sub("resample_conf").integer("resample_rate", 16000),
        num_mel_bins=fbank.integer("num_mel_bins", 80),
        frame_length_ms=fbank.number("frame_length", 25),
        frame_shift_ms=fbank.number("frame_shift", 10),
    )
    if spec.num_mel_bins != input_dim:
        raise CheckpointError(
            f"train.yaml: input_dim is {input_dim} but fbank_conf has num_mel_bins {spec.num_mel_bins}; they must agree"
        )
    return spec


def _tokenizer_spec(path: Path, config: Fields, unit_table: Path) -> TokenizerSpec:
    options = config.sub("tokenizer_conf")
    bpe = options.raw("bpe_path")
    bpe_model = path / Path(str(bpe)).name if bpe else None
    return TokenizerSpec(
        kind=config.choice("tokenizer", "char", ("char", "bpe"), _ADVICE),
        unit_table=unit_table,
        special_tokens={name: int(value) for name, value in (options.raw("special_tokens") or {}).items()},
        bpe_model=bpe_model if bpe_model is not None and bpe_model.is_file() else None,
        connect_symbol=str(options.raw("connect_symbol") or ""),
    )


def _cmvn(path: Path, config: Fields, dim: int) -> tuple[Tensor | None, Tensor | None]:
    """Mean and inverse standard deviation from sums: m = s1/n, 1/sqrt(max(s2/n - m^2, 1e-20))."""
    if config.raw("cmvn") is None:
        return None, None
    config.choice("cmvn", None, ("global_cmvn",), _ADVICE)
    options = config.sub("cmvn_conf")
    if not options.flag("is_json_cmvn", True):
        raise CheckpointError("cmvn_conf: is_json_cmvn: False is not supported (supported: True); convert it to JSON")
    file = path / Path(str(options.raw("cmvn_file") or "global_cmvn")).name
    try:
        stats = json.loads(file.read_text(encoding="utf-8"))
        count = float(stats["frame_num"])
        sums = torch.tensor(stats["mean_stat"], dtype=torch.float64)
        squares = torch.tensor(stats["var_stat"], dtype=torch.float64)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{file} cannot be read as JSON statistics (mean_stat, var_stat, frame_num): {type(error).__name__}"
        ) from error
    if sums.shape != (dim,) or squares.shape != (dim,) or count <= 0:
        raise CheckpointError(f"{file} holds statistics of {len(sums)} bins over {count:g} frames; expected {dim} bins")
    mean = sums / count
    variance = (squares / count - mean.square()).clamp_min(1e-20)
    return mean.float(), variance.rsqrt().float()


WENET = register_checkpoint_format(CheckpointFormat("wenet", lambda path: (path / "train.yaml").is_file(), load_wenet))
