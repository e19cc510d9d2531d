"""Features of the checkpoint, and explicit ones over them."""

import dataclasses
import logging

import pytest

from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from tests.golden.cases import GoldenCase, wave

CASE = GoldenCase("u2pp_conformer_ln_causal")


def make(features: FeatureSpec | None) -> ASREngine:
    return ASREngine(
        EngineConfig(
            ckpt_dir=str(CASE.path),
            dtype="float32",
            gc_freeze=False,
            max_batch_size=1,
            max_blocks_per_seq=32,
            feature_config=features,
        )
    )


def test_equal_ones_change_nothing_and_warn_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        engine = make(CASE.checkpoint.features)
    assert not caplog.records
    assert engine.transcribe(wave(1)) == make(None).transcribe(wave(1))


def test_explicit_ones_win_with_a_warning_that_names_what_differs(caplog: pytest.LogCaptureFixture) -> None:
    quieter = dataclasses.replace(CASE.checkpoint.features, audio_scale=1.0, low_freq=40.0)
    with caplog.at_level(logging.WARNING):
        engine = make(quieter)
    assert "audio_scale, low_freq" in caplog.text
    assert engine.transcribe(wave(1)) != make(None).transcribe(wave(1))


def test_ones_that_the_model_cannot_take_are_refused() -> None:
    with pytest.raises(ConfigError, match="gives 40 numbers a frame but the model takes 80"):
        make(FeatureSpec(num_mel_bins=40))
