"""What is wrong or not supported yet is refused by name, and never by another error."""

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.errors import CheckpointError
from tests.checkpoints.directory import ABSENT, CheckpointDirectory

UNSUPPORTED_ENCODER = [
    ("concat_after", True),
    ("conv_inner_factor", 4),
    ("mlp_type", "moe"),
    ("layer_norm_type", "rms_norm"),
    ("norm_eps", 1e-6),
    ("pos_enc_layer_type", "conv"),
    ("selfattention_layer_type", "shaw_rel_selfattn"),
    ("activation_type", "hardtanh"),
    ("input_layer", "linear"),
    ("input_layer", "conv1d2"),
    ("cnn_module_norm", "group_norm"),
]
UNSUPPORTED = [
    ("encoder", "branchformer"),
    ("encoder", "squeezeformer"),
    ("decoder", "whisper"),
    ("ctc", "none"),
    ("model", "transducer"),
    ("model", "paraformer"),
    ("model", "whisper"),
    ("tokenizer", "whisper"),
    ("tokenizer", "paraformer"),
    ("cmvn", "kaldi"),
    ("dataset_conf.log_mel_spectrogram_conf", {"n_fft": 400}),
    ("dataset_conf.feats_type", "log_mel_spectrogram"),
    ("dataset_conf.fbank_conf.window_type", "hamming"),
]


@pytest.mark.parametrize(
    ("key", "value"), [(f"encoder_conf.{name}", value) for name, value in UNSUPPORTED_ENCODER] + UNSUPPORTED, ids=str
)
def test_what_is_not_supported_is_refused_by_name(directory: CheckpointDirectory, key: str, value: Any) -> None:
    directory.set(key, value)
    with pytest.raises(CheckpointError) as caught:
        directory.load()
    message = str(caught.value)
    assert key.rsplit(".", 1)[-1] in message
    if not isinstance(value, dict):
        assert str(value) in message
        assert "supported:" in message


@pytest.mark.parametrize("key", ["output_dim"])
def test_a_missing_key_is_named(directory: CheckpointDirectory, key: str) -> None:
    directory.set(key, ABSENT)
    with pytest.raises(CheckpointError, match=f"{key} is missing"):
        directory.load()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder_conf.attention_heads", 3),
        ("encoder_conf.output_size", 0),
        ("encoder_conf.num_blocks", "three"),
        ("encoder_conf.cnn_module_kernel", 7.5),
        ("encoder_conf.use_dynamic_chunk", "yes"),
        ("encoder_conf", [1, 2]),
        ("ctc_conf.ctc_blank_id", -1),
        ("ctc_conf.ctc_blank_id", 50),
        ("tokenizer_conf.special_tokens", [0, 1]),
        ("tokenizer_conf.special_tokens.<sos>", 50),
        ("tokenizer_conf.special_tokens.<unk>", "one"),
        ("dataset_conf.fbank_conf.num_mel_bins", 40),
        ("dataset_conf.fbank_conf.frame_length", 0),
        ("dataset_conf.fbank_conf.frame_shift", 0.01),
        ("dataset_conf.resample_conf.resample_rate", "16k"),
    ],
    ids=str,
)
def test_an_impossible_value_is_named(directory: CheckpointDirectory, key: str, value: Any) -> None:
    directory.set(key, value)
    name = key.rsplit(".", 1)[-1]
    with pytest.raises(CheckpointError, match=name):
        directory.load()


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")


def test_no_value_of_train_yaml_gives_any_other_error(
    directory: CheckpointDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each key in turn takes values of every kind: the checkpoint loads, or is refused as a checkpoint."""
    config = directory.config()
    monkeypatch.setattr("oasr_backend.checkpoints.wenet._read_yaml", lambda path: config)
    monkeypatch.setattr("oasr_backend.checkpoints.wenet._read_state", lambda path: {})
    wrong = []
    for key in list(leaves(config)):
        *parents, name = key.split(".")
        mapping = config
        for parent in parents:
            mapping = mapping[parent]
        original = mapping[name]
        for value in (None, -1, 0, 1, 2**40, 1.5, True, "x", "", [], [1], {}, {"a": 1}, float("nan"), float("inf")):
            mapping[name] = value
            try:
                directory.load()
            except CheckpointError:
                pass
            except Exception as error:
                wrong.append(f"{key}={value!r}: {type(error).__name__}: {error}")
        mapping[name] = original
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["final.pt", "units.txt"])
def test_a_missing_file_is_named(directory: CheckpointDirectory, name: str) -> None:
    (directory.path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        directory.load()


def test_a_directory_without_train_yaml_is_no_checkpoint(directory: CheckpointDirectory) -> None:
    (directory.path / "train.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint of a known format \(.*\).*train\.yaml"):
        directory.load()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        load_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content", [b"", b"- 1\n- 2\n", b"key: [unclosed\n", b"\xff\xfe\x00", b"words\n", b"!!python/object:os.system {}"]
)
def test_a_train_yaml_that_is_no_mapping_is_refused(directory: CheckpointDirectory, content: bytes) -> None:
    (directory.path / "train.yaml").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"train\.yaml"):
        directory.load()


@pytest.mark.parametrize(
    "content",
    [
        "mean [ 1 2 3 ]",
        "",
        "[1, 2]",
        "3",
        '{"mean_stat": [1], "var_stat": [1]}',
        '{"mean_stat": [1, 2], "var_stat": [1, 2], "frame_num": 3}',
        '{"mean_stat": "x", "var_stat": [1], "frame_num": 3}',
        '{"mean_stat": 5, "var_stat": 5, "frame_num": 3}',
        '{"mean_stat": {"a": 1}, "var_stat": [1], "frame_num": 3}',
        '{"mean_stat": [[1], [1, 2]], "var_stat": [1], "frame_num": 3}',
        json.dumps({"mean_stat": [1.0] * 80, "var_stat": [1.0] * 80, "frame_num": 0}),
        json.dumps({"mean_stat": [1.0] * 80, "var_stat": [1.0] * 80, "frame_num": float("nan")}),
        json.dumps({"mean_stat": [float("nan")] * 80, "var_stat": [1.0] * 80, "frame_num": 3}),
    ],
    ids=lambda content: content[:60],
)
def test_statistics_that_are_not_json_sums_are_refused(directory: CheckpointDirectory, content: str) -> None:
    (directory.path / "global_cmvn").write_text(content)
    with pytest.raises(CheckpointError, match="global_cmvn"):
        directory.load()


@pytest.mark.parametrize("content", [b"", b"no pickle at all", b"PK\x03\x04 broken", b"\x80\x02}q\x00."])
def test_weights_that_cannot_be_read_are_refused(directory: CheckpointDirectory, content: bytes) -> None:
    (directory.path / "final.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"final\.pt"):
        directory.load()


def test_a_truncated_file_is_refused(directory: CheckpointDirectory) -> None:
    file = directory.path / "final.pt"
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(CheckpointError, match=r"final\.pt"):
        directory.load()


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, mark: Path):
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle"])
def test_code_in_a_pickle_is_never_run(directory: CheckpointDirectory, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "the payload ran"
    file = directory.path / "final.pt"
    value = {"w": torch.ones(1), "x": Payload(mark)}
    if kind == "pickle":
        file.write_bytes(pickle.dumps(value))
    else:
        torch.save(value, file, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(CheckpointError, match="plain weights"):
        directory.load()
    assert not mark.exists()
    # The payload is a real one.
    pickle.loads(pickle.dumps(value))
    assert mark.exists()


def nested(payload: Payload) -> Any:
    """Deep inside what a training script might keep beside its weights."""
    return {"w": torch.ones(1), "optimizer": {"state": [{"step": (1, payload)}]}}


def in_a_pickle(payload: Payload) -> Any:
    """Bytes that are a pickle by themselves: nobody must open them."""
    return {"w": torch.ones(1), "inner": pickle.dumps(payload)}


@pytest.mark.parametrize("make", [nested, in_a_pickle])
def test_code_is_not_run_however_deep_it_lies(
    directory: CheckpointDirectory, tmp_path: Path, make: Callable[[Payload], Any]
) -> None:
    mark = tmp_path / "the payload ran"
    torch.save(make(Payload(mark)), directory.path / "final.pt")
    with pytest.raises(CheckpointError, match=r"final\.pt"):
        directory.build()
    assert not mark.exists()


def test_code_is_not_run_from_averaged_weights_either(directory: CheckpointDirectory, tmp_path: Path) -> None:
    mark = tmp_path / "the payload ran"
    torch.save({"w": torch.ones(1), "x": Payload(mark)}, directory.path / "avg_5.pt")
    with pytest.raises(CheckpointError, match="plain weights"):
        load_checkpoint(directory.path, weights_name="avg_5.pt")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "oasr_config.json", "tokenizer/units.txt"])
def test_code_is_not_run_from_any_file_of_a_bundle(directory: CheckpointDirectory, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "the payload ran"
    save_bundle(directory.load(), tmp_path / "bundle")
    (tmp_path / "bundle" / name).write_bytes(pickle.dumps({"w": Payload(mark)}, protocol=0))
    with pytest.raises(CheckpointError):
        CheckpointDirectory(tmp_path / "bundle").build()
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [torch.ones(3), [torch.ones(3)], {"model": {"w": torch.ones(3)}}, {"epoch": 3}, {0: torch.ones(3)}],
    ids=["tensor", "list", "nested", "number", "unnamed"],
)
def test_what_is_no_flat_mapping_of_tensors_is_refused(directory: CheckpointDirectory, value: Any) -> None:
    torch.save(value, directory.path / "final.pt")
    with pytest.raises(CheckpointError, match=r"final\.pt"):
        directory.build()


def remove(state: dict[str, Tensor]) -> None:
    del state["encoder.encoders.1.self_attn.linear_q.weight"]
    del state["decoder.left_decoder.decoders.0.norm3.bias"]


def reshape(state: dict[str, Tensor]) -> None:
    state["ctc.ctc_lo.weight"] = torch.zeros(51, 64)


def add(state: dict[str, Tensor]) -> None:
    state["encoder.encoders.0.extra.weight"] = torch.zeros(3)
    state["predictor.embed.weight"] = torch.zeros(2, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (remove, ["missing: encoder.encoders.1.self_attn.linear_q.weight [64, 64]", "decoders.0.norm3.bias [64]"]),
        (reshape, ["ctc.ctc_lo.weight is [51, 64], expected [50, 64]"]),
        (add, ["not part of this architecture: encoder.encoders.0.extra.weight [3]", "predictor.embed.weight [2, 2]"]),
    ],
    ids=["missing", "shape", "extra"],
)
def test_weights_that_do_not_fit_are_listed(
    directory: CheckpointDirectory, change: Callable[[dict[str, Tensor]], None], words: list[str]
) -> None:
    directory.change_state(change)
    with pytest.raises(CheckpointError) as caught:
        directory.build()
    for part in words:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("encoder_conf.num_blocks", 4, "encoder.encoders.3."),
        ("encoder_conf.num_blocks", 2, "encoder.encoders.2."),
        ("encoder_conf.cnn_module_kernel", 15, "depthwise_conv.weight"),
        ("encoder_conf.linear_units", 128, "feed_forward.w_1.weight"),
        ("encoder_conf.cnn_module_norm", "batch_norm", "conv_module.norm.running_mean"),
        ("decoder_conf.r_num_blocks", 2, "decoder.right_decoder.decoders.1."),
    ],
)
def test_a_configuration_of_another_model_is_refused(
    directory: CheckpointDirectory, key: str, value: Any, named: str
) -> None:
    directory.set(key, value)
    with pytest.raises(CheckpointError, match=named.replace(".", r"\.")):
        directory.build()


def test_a_vocabulary_that_does_not_fit_is_refused(directory: CheckpointDirectory) -> None:
    directory.set("output_dim", 51)
    with pytest.raises(CheckpointError, match=r"50 units but the model has output_dim 51"):
        directory.load()
