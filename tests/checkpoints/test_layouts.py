"""The three generations of WeNet directories."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

import oasr_backend.checkpoints.wenet
import oasr_backend.models.conformer.model
import oasr_backend.tokenizers.symbol_table  # noqa: F401
from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.checkpoints.cmvn import read_cmvn
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.errors import CheckpointError
from oasr_backend.tokenizers.base import build_tokenizer

DATA = Path(__file__).parents[1] / "golden" / "data"
LAYOUTS = DATA / "layouts"
CASE = DATA / "u2pp_conformer_ln_causal"
EXPECTED = json.loads((LAYOUTS / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A writable copy of a recorded checkpoint."""
    target = tmp_path / "checkpoint"
    target.mkdir()
    for name in ("train.yaml", "final.pt", "units.txt", "global_cmvn"):
        shutil.copyfile(CASE / name, target / name)
    return target


def edit(directory: Path, **changes: object) -> None:
    """Changes top-level keys of train.yaml; None removes one."""
    path = directory / "train.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for name, value in changes.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = value
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def without_trained_cmvn(directory: Path) -> None:
    state = torch.load(directory / "final.pt", weights_only=True)
    kept = {name: tensor for name, tensor in state.items() if not name.startswith("encoder.global_cmvn.")}
    torch.save(kept, directory / "final.pt")


def generation(directory: Path, name: str) -> Checkpoint:
    shutil.copyfile(LAYOUTS / name, directory / "train.yaml")
    if EXPECTED[name]["cmvn"] == "kaldi text":
        shutil.copyfile(LAYOUTS / "global_cmvn_kaldi", directory / "global_cmvn")
    shutil.copyfile(LAYOUTS / EXPECTED[name]["units"], directory / "units.txt")
    return load_checkpoint(directory)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_generation_gives_the_same_model(directory: Path, name: str) -> None:
    checkpoint = generation(directory, name)
    assert (checkpoint.model.sos_id, checkpoint.model.eos_id) == (EXPECTED[name]["sos"], EXPECTED[name]["eos"])
    main = load_checkpoint(CASE)
    assert checkpoint.model.encoder == main.model.encoder
    assert checkpoint.model.decoder == main.model.decoder
    assert checkpoint.features == main.features
    assert checkpoint.cmvn_mean is not None
    assert checkpoint.cmvn_istd is not None
    with np.load(LAYOUTS / "cmvn_expected.npz") as expected:
        np.testing.assert_allclose(checkpoint.cmvn_mean, expected["mean"], rtol=1e-6)
        np.testing.assert_allclose(checkpoint.cmvn_istd, expected["istd"], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_generation_gives_the_same_text_with_statistics_from_its_file(directory: Path, name: str) -> None:
    without_trained_cmvn(directory)
    generation(directory, name)
    shutil.copyfile(CASE / "units.txt", directory / "units.txt")
    with np.load(DATA / "common" / "inputs.npz") as inputs:
        wave = inputs["wav_i16_1"]
    config = {"dtype": "float32", "gc_freeze": False, "max_batch_size": 1, "max_blocks_per_seq": 32}
    expected = ASREngine(EngineConfig(ckpt_dir=str(CASE), **config)).transcribe(wave)
    assert expected
    assert ASREngine(EngineConfig(ckpt_dir=str(directory), **config)).transcribe(wave) == expected


def test_old_tables_end_with_the_sentence_mark_which_is_no_text(directory: Path) -> None:
    checkpoint = generation(directory, "train_v1.yaml")
    tokenizer = build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
    assert tokenizer.decode([checkpoint.model.eos_id]) == ""
    assert tokenizer.decode([2]) != ""


def test_statistics_come_from_the_weights_when_the_file_is_missing(directory: Path) -> None:
    (directory / "global_cmvn").unlink()
    assert load_checkpoint(directory).cmvn_mean is None
    ASREngine(EngineConfig(ckpt_dir=str(directory), max_batch_size=1, max_blocks_per_seq=32))


def test_statistics_that_are_nowhere_are_an_error(directory: Path) -> None:
    (directory / "global_cmvn").unlink()
    without_trained_cmvn(directory)
    with pytest.raises(CheckpointError, match="global_cmvn cannot be read"):
        load_checkpoint(directory)


@pytest.mark.parametrize("text", ["", "[ ]", "[ 1 2 3 ]", "1 2 3 4", "[ a b c d ]", "[ 1 0 1 0 ]"])
def test_damaged_kaldi_statistics_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cmvn"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CheckpointError):
        read_cmvn(file, 1, is_json=False)


def test_position_tables_and_unused_concat_weights_are_tolerated(directory: Path) -> None:
    state = torch.load(directory / "final.pt", weights_only=True)
    state["encoder.embed.pos_enc.pe"] = torch.zeros(1, 5000, 64)
    state["encoder.encoders.0.concat_linear.weight"] = torch.zeros(64, 128)
    state["encoder.encoders.0.concat_linear.bias"] = torch.zeros(64)
    state["decoder.left_decoder.decoders.0.concat_linear1.weight"] = torch.zeros(64, 128)
    torch.save(state, directory / "final.pt")
    ASREngine(EngineConfig(ckpt_dir=str(directory), max_batch_size=1, max_blocks_per_seq=32))


def test_a_file_of_the_old_serialisation_is_read(directory: Path) -> None:
    state = torch.load(directory / "final.pt", weights_only=True)
    torch.save(state, directory / "final.pt", _use_new_zipfile_serialization=False)
    assert load_checkpoint(directory).state.keys() == state.keys()


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("encoder_conf", {"concat_after": True}, "concat_after"),
        ("encoder_conf", {"mlp_type": "moe"}, "mlp_type"),
        ("encoder_conf", {"mlp_type": "gated"}, "mlp_type"),
        ("encoder_conf", {"layer_norm_type": "rms_norm"}, "layer_norm_type"),
        ("encoder_conf", {"cnn_module_norm": "rms_norm"}, "cnn_module_norm"),
        ("encoder_conf", {"conv_inner_factor": 4}, "conv_inner_factor"),
        ("encoder_conf", {"input_layer": "linear"}, "input_layer"),
        ("encoder_conf", {"pos_enc_layer_type": "conv"}, "pos_enc_layer_type"),
        ("encoder_conf", {"selfattention_layer_type": "shaw_rel_selfattn"}, "selfattention_layer_type"),
        ("encoder_conf", {"activation_type": "hardtanh"}, "activation_type"),
        ("encoder_conf", {"attention_heads": 3}, "multiple of attention_heads"),
        ("encoder_conf", {"n_kv_head": 3}, "multiple of n_kv_head"),
        ("encoder_conf", {"causal": False}, "even"),
        ("decoder_conf", {"src_attention": False}, "src_attention"),
        ("decoder_conf", {"tie_word_embedding": True}, "tie_word_embedding"),
        ("dataset_conf", {"log_mel_spectrogram_conf": {}}, "log_mel_spectrogram_conf"),
        ("dataset_conf", {"feats_type": "log_mel_spectrogram"}, "feats_type"),
    ],
)
def test_options_that_are_not_supported_are_refused_by_name(
    directory: Path, section: str, changes: dict[str, object], message: str
) -> None:
    document = yaml.safe_load((directory / "train.yaml").read_text(encoding="utf-8"))
    edit(directory, **{section: {**document[section], **changes}})
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(directory)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "squeezeformer"}, "squeezeformer"),
        ({"encoder": "e_branchformer"}, "e_branchformer"),
        ({"model": "transducer"}, "transducer"),
        ({"model": "paraformer"}, "paraformer"),
        ({"predictor": "rnn"}, "transducers"),
        ({"decoder": "none"}, "decoder"),
        ({"tokenizer": "whisper"}, "whisper"),
        ({"cmvn": "utterance_cmvn"}, "utterance_cmvn"),
        ({"output_dim": None}, "output_dim is missing"),
        ({"output_dim": "many"}, "output_dim"),
        ({"input_dim": 40}, "expected 40 bins"),
        ({"encoder_conf": [1]}, "expected a mapping"),
    ],
)
def test_models_that_are_not_supported_are_refused_by_name(
    directory: Path, changes: dict[str, object], message: str
) -> None:
    edit(directory, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(directory)


def test_first_generation_features_are_read(directory: Path) -> None:
    shutil.copyfile(LAYOUTS / "train_v1.yaml", directory / "train.yaml")
    shutil.copyfile(LAYOUTS / "global_cmvn_kaldi", directory / "global_cmvn")
    options = {"feature_type": "mfcc", "mel_bins": 23, "frame_length": 32, "frame_shift": 16, "num_ceps": 80}
    edit(directory, collate_conf={"feature_extraction_conf": options})
    with pytest.raises(CheckpointError, match="num_ceps is 80, above num_mel_bins 23"):
        load_checkpoint(directory)
    edit(directory, collate_conf={"feature_extraction_conf": {**options, "mel_bins": 80, "using_pitch": True}})
    with pytest.raises(CheckpointError, match="using_pitch"):
        load_checkpoint(directory)
    edit(directory, collate_conf={"feature_extraction_conf": {**options, "mel_bins": 80}})
    features = load_checkpoint(directory).features
    assert (features.kind, features.dim, features.frame_samples, features.shift_samples) == ("mfcc", 80, 512, 256)
