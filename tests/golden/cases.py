"""The recorded truth (data/README.md) and what the engine makes of the same checkpoints."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import oasr_backend.checkpoints.wenet
import oasr_backend.features.fbank
import oasr_backend.features.mfcc
import oasr_backend.models.conformer.model
import oasr_backend.models.transformer.model
import oasr_backend.tokenizers.symbol_table  # noqa: F401
from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.models.base import AsrModel, build_model
from oasr_backend.tokenizers.base import Tokenizer, build_tokenizer

DATA = Path(__file__).parent / "data"
CASES = (
    "u2pp_conformer_ln_causal",
    "u2_conformer_bn_causal",
    "u2pp_conformer_bpe",
    "u2_conformer_bn_noncausal",
    "u2_transformer_abs",
    "u2_transformer_postnorm",
    "u2pp_conformer_conv2d6",
    "u2pp_conformer_conv2d8",
    "u2_conformer_nobias_gqa",
    "u2_conformer_rope",
    "conformer_offline",
)
# WeNet itself streams neither: one was not trained for it, the other raises.
STREAMED = tuple(name for name in CASES if name not in ("conformer_offline", "u2_conformer_rope"))
UTTERANCES = range(3)
CHUNKS = (4, 8, 16)
LEFT_CHUNKS = (-1, 2, 4)
CPU = torch.device("cpu")

# Log-probabilities of the same mode, float32.
ATOL, RTOL = 2e-4, 1e-3
# Frames whose two best tokens lie nearer than this have no one right answer.
TIE = 1e-3
# And nearer than this none at all, not even on the same numbers.
DEAD_HEAT = 1e-6


@dataclass(frozen=True)
class GoldenCase:
    """One recorded checkpoint. What is loaded is shared, so it must not be written to."""

    name: str

    @property
    def path(self) -> Path:
        return DATA / self.name

    @property
    def offline(self) -> Mapping[str, np.ndarray]:
        return arrays(f"{self.name}/offline.npz")

    @property
    def streaming(self) -> Mapping[str, np.ndarray]:
        return arrays(f"{self.name}/streaming.npz")

    @property
    def chunk_masked(self) -> Mapping[str, np.ndarray]:
        return arrays(f"{self.name}/chunk_masked.npz")

    @property
    def decoded(self) -> dict[str, Any]:
        return _decoded(self.name)

    @property
    def checkpoint(self) -> Checkpoint:
        return _checkpoint(self.path)

    @property
    def model(self) -> AsrModel:
        return float32_model(self.path)

    @property
    def tokenizer(self) -> Tokenizer:
        return build_tokenizer(self.checkpoint.tokenizer, self.checkpoint.model.vocab_size)

    def recorded_frames(self, utterance: int) -> int:
        """Encoder frames of an utterance."""
        return int(self.offline["lens"][utterance])

    @property
    def sees_padding(self) -> bool:
        """Whether WeNet's batch depends on its padding: through a centred convolution."""
        convolution = self.checkpoint.model.encoder.convolution
        return convolution is not None and not convolution.causal

    def recorded_offline(self, utterance: int) -> np.ndarray:
        """[frames, vocabulary] log-probabilities of the clip alone with full context."""
        if self.sees_padding:
            return self.offline[f"single_ctc_logprobs_{utterance}"]
        return self.recorded_in_batch(utterance)

    def recorded_in_batch(self, utterance: int) -> np.ndarray:
        """[frames, vocabulary] log-probabilities of the clip in WeNet's padded batch."""
        return self.offline["ctc_logprobs"][utterance, : self.recorded_frames(utterance)]


@cache
def arrays(name: str) -> Mapping[str, np.ndarray]:
    with np.load(DATA / name) as archive:
        return {key: archive[key] for key in archive.files}


@cache
def _decoded(name: str) -> dict[str, Any]:
    with gzip.open(DATA / name / "decode.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


@cache
def _checkpoint(path: Path) -> Checkpoint:
    return load_checkpoint(path)


@cache
def float32_model(path: Path) -> AsrModel:
    with torch.inference_mode():
        return build_model(_checkpoint(path), CPU, torch.float32)


def wave_int16(utterance: int) -> np.ndarray:
    """[samples] int16, synthesised speech at 16 kHz."""
    return arrays("common/inputs.npz")[f"wav_i16_{utterance}"]


def wave(utterance: int) -> np.ndarray:
    """[samples] float32 in [-1, 1]."""
    return wave_int16(utterance).astype(np.float32) / 32768


def recorded_fbank(utterance: int) -> np.ndarray:
    """[frames, 80] float32."""
    return arrays("common/inputs.npz")[f"fbank_{utterance}"]


def assert_log_probs_equal(actual: Any, expected: Any) -> None:
    """Within the tolerances of the recordings."""
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), atol=ATOL, rtol=RTOL)
