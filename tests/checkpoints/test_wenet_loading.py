"""What is read from a WeNet directory."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr_backend.models.config import AttentionConfig, ConvolutionConfig
from oasr_backend.models.geometry import FRONT_ENDS
from tests.checkpoints.directory import ABSENT, CheckpointDirectory
from tests.golden.cases import CASES, GoldenCase


def test_the_model_of_train_yaml() -> None:
    model = GoldenCase("u2pp_conformer_ln_causal").checkpoint.model
    assert (model.architecture, model.vocab_size, model.streaming) == ("conformer", 50, True)
    assert (model.blank_id, model.sos_id, model.eos_id) == (0, 2, 2)
    encoder = model.encoder
    assert (encoder.input_dim, encoder.dim, encoder.layers, encoder.ffn_dim) == (80, 64, 3, 64)
    assert encoder.attention == AttentionConfig(4, 4, 16, "rel_pos", True, True, True)
    assert encoder.convolution == ConvolutionConfig(8, True, "layer_norm", True)
    assert encoder.geometry == FRONT_ENDS["conv2d"]
    decoder = model.decoder
    assert (decoder.layers, decoder.right_layers, decoder.reverse_weight) == (2, 1, 0.3)


def test_a_decoder_of_one_direction_has_no_right_layers() -> None:
    decoder = GoldenCase("u2_conformer_bn_causal").checkpoint.model.decoder
    assert (decoder.layers, decoder.right_layers, decoder.reverse_weight) == (1, 0, 0.0)


@pytest.mark.parametrize("name", CASES)
def test_every_weight_of_a_recorded_checkpoint_is_accounted_for(
    make_directory: Callable[[str], CheckpointDirectory], name: str
) -> None:
    make_directory(name).build()


def test_statistics_are_sums_over_frames(directory: CheckpointDirectory) -> None:
    checkpoint = directory.load()
    stats = json.loads((directory.path / "global_cmvn").read_text())
    mean = np.array(stats["mean_stat"]) / stats["frame_num"]
    variance = np.array(stats["var_stat"]) / stats["frame_num"] - mean**2
    assert checkpoint.cmvn_mean is not None and checkpoint.cmvn_istd is not None
    np.testing.assert_allclose(checkpoint.cmvn_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(checkpoint.cmvn_istd, variance**-0.5, rtol=1e-5)
    for name, value in (("mean", checkpoint.cmvn_mean), ("istd", checkpoint.cmvn_istd)):
        np.testing.assert_allclose(checkpoint.state[f"encoder.global_cmvn.{name}"], value, rtol=1e-4)


def test_a_bin_that_never_varies_does_not_divide_by_zero(directory: CheckpointDirectory) -> None:
    stats = {"mean_stat": [10.0] * 80, "var_stat": [10.0] * 80, "frame_num": 10}
    (directory.path / "global_cmvn").write_text(json.dumps(stats))
    istd = directory.load().cmvn_istd
    assert istd is not None and istd.isfinite().all()
    np.testing.assert_allclose(istd, 1e10, rtol=1e-5)


def test_no_normalisation_when_none_is_configured(directory: CheckpointDirectory) -> None:
    directory.set("cmvn", None)
    directory.set("cmvn_conf", ABSENT)
    (directory.path / "global_cmvn").unlink()
    checkpoint = directory.load()
    assert checkpoint.cmvn_mean is None and checkpoint.cmvn_istd is None


def test_files_are_found_by_name_whatever_path_training_had(directory: CheckpointDirectory) -> None:
    directory.set("cmvn_conf.cmvn_file", "/nowhere/exp/stats.json")
    (directory.path / "global_cmvn").rename(directory.path / "stats.json")
    assert directory.load().cmvn_mean is not None


def test_a_subword_model_is_found_by_name(make_directory: Callable[[str], CheckpointDirectory]) -> None:
    directory = make_directory("u2pp_conformer_bpe")
    tokenizer = directory.load().tokenizer
    assert tokenizer.kind == "bpe" and tokenizer.bpe_model == directory.path / "bpe.model"


def test_an_older_unit_table_is_called_words(directory: CheckpointDirectory) -> None:
    (directory.path / "units.txt").rename(directory.path / "words.txt")
    assert directory.load().tokenizer.unit_table.name == "words.txt"


def test_without_special_tokens_the_last_unit_starts_and_ends_a_sentence(directory: CheckpointDirectory) -> None:
    directory.set("tokenizer_conf.special_tokens", ABSENT)
    model = directory.load().model
    assert (model.sos_id, model.eos_id) == (49, 49)


def test_features_follow_the_configuration(directory: CheckpointDirectory) -> None:
    directory.set("dataset_conf.resample_conf.resample_rate", 8000)
    directory.set("dataset_conf.fbank_conf.frame_shift", 12.5)
    features = directory.load().features
    assert (features.sample_rate, features.num_mel_bins, features.audio_scale) == (8000, 80, 32768.0)
    assert (features.frame_samples, features.shift_samples) == (200, 100)


@pytest.mark.parametrize(
    ("options", "streaming"),
    [
        ({"use_dynamic_chunk": True}, True),
        ({"use_dynamic_chunk": False}, False),
        ({"use_dynamic_chunk": False, "static_chunk_size": 16}, True),
    ],
)
def test_only_models_trained_in_chunks_stream(
    directory: CheckpointDirectory, options: dict[str, object], streaming: bool
) -> None:
    for name, value in options.items():
        directory.set(f"encoder_conf.{name}", value)
    assert directory.load().model.streaming is streaming


def test_position_tables_of_newer_checkpoints_are_not_needed(directory: CheckpointDirectory) -> None:
    def add(state: dict[str, Tensor]) -> None:
        state["encoder.embed.pos_enc.pe"] = torch.zeros(1, 5000, 64)
        state["decoder.left_decoder.embed.1.pe"] = torch.zeros(1, 5000, 64)
        state["decoder.right_decoder.embed.1.pe"] = torch.zeros(1, 5000, 64)

    directory.change_state(add)
    directory.build()


def test_half_precision_weights_are_read(directory: CheckpointDirectory) -> None:
    def halve(state: dict[str, Tensor]) -> None:
        for name, tensor in state.items():
            if tensor.is_floating_point():
                state[name] = tensor.half()

    directory.change_state(halve)
    directory.build()
