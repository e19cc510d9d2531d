"""Every registry at once: a tiny model family that the engine has never heard of."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr_backend.checkpoints.base import (
    FORMATS,
    Checkpoint,
    CheckpointFormat,
    TokenizerSpec,
    register_checkpoint_format,
)
from oasr_backend.config import ResolvedConfig
from oasr_backend.decode.base import (
    STRATEGIES,
    DecodeSession,
    DecodeSetup,
    DecodeStrategy,
    Hypothesis,
    register_decode_strategy,
)
from oasr_backend.decode.hotwords import HotwordGraph
from oasr_backend.decode.scores import FrameScores, Needs, score_frames
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.engine.batching import POLICIES, BatchLimits, Candidate, register_batching_policy
from oasr_backend.engine.partition import PARTITIONS, register_partition_policy
from oasr_backend.engine.request import Request
from oasr_backend.engine.runtimes.base import RUNTIMES, RuntimeUsage, StreamingRuntime, register_streaming_runtime
from oasr_backend.errors import ConfigError
from oasr_backend.features.base import EXTRACTORS, register_feature_extractor
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.base import MODELS, AsrModel, register_model
from oasr_backend.models.config import CacheSpec, ModelConfig
from oasr_backend.models.geometry import FrontEndGeometry
from oasr_backend.tokenizers.base import TOKENIZERS, Tokenizer, register_tokenizer

QUIET, LOUD = 0, 1
NAME = "loudness"


class LoudnessModel(AsrModel):
    """A frame is the mean of four feature frames; above a threshold it is LOUD. Its streams keep a running count."""

    streaming_runtime = NAME
    geometry = FrontEndGeometry(((4, 4),))
    cache_spec = CacheSpec(0, 0, 0, 0, 0, 0)

    def __init__(self, config: ModelConfig, threshold: float):
        self.config = config
        self._threshold = threshold

    @property
    def fresh_convolution_history(self) -> Tensor | None:
        return None

    def encode_clips(self, features: Tensor, lengths: Tensor, chunk: int = -1, left_chunks: int = -1) -> Tensor:
        return features.unfold(1, 4, 4).mean(-1)

    def encode_chunk(self, features: Tensor, positions: Tensor, memory: object) -> Tensor:
        return features.unfold(1, 4, 4).mean(-1)

    def score(self, hidden: Tensor, needs: Needs) -> FrameScores:
        logits = torch.cat((torch.zeros_like(hidden), (hidden - self._threshold) * 1000), dim=-1)
        return score_frames(logits, hidden, needs, QUIET)


class CountingRuntime(StreamingRuntime):
    """Keeps nothing of a stream but its slot."""

    def __init__(self, model: AsrModel, config: ResolvedConfig):
        self._model = model
        self._free = list(range(config.max_batch_size))
        self.steps = 0

    def allocate(self, request: Request) -> None:
        request.slot = self._free.pop()

    def free(self, request: Request) -> None:
        if request.slot is not None:
            self._free.append(request.slot)
            request.slot = None

    def restart(self, request: Request) -> None:
        request.offset = 0

    def reserve(self, request: Request, frames: int) -> bool:
        return True

    def forward(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> Tensor:
        self.steps += 1
        return self._model.encode_chunk(features, torch.zeros(0), None)

    @property
    def usage(self) -> RuntimeUsage:
        return RuntimeUsage(len(self._free), 0, 0)


@dataclass
class RunSession(DecodeSession):
    runs: list[int] = field(default_factory=list)
    last: int = QUIET


class RunStrategy(DecodeStrategy):
    """A token for every run of loud frames, at its first frame."""

    def __init__(self, setup: DecodeSetup):
        self.needs = Needs(log_probs=True)

    def open(self, hotwords: HotwordGraph | None = None) -> RunSession:
        return RunSession()

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        assert scores.full is not None
        for session, row, count in zip(sessions, scores.full.argmax(-1).tolist(), frames, strict=True):
            assert isinstance(session, RunSession)
            for token in row[:count]:
                if token == LOUD and session.last != LOUD:
                    session.runs.append(session.frames_seen)
                session.last = token
                session.frames_seen += 1

    def best(self, session: DecodeSession) -> Hypothesis:
        assert isinstance(session, RunSession)
        runs = tuple(session.runs)
        return Hypothesis(tokens=(LOUD,) * len(runs), frames=runs, confidences=(1.0,) * len(runs))


class Amplitude:
    """One number a frame: the mean of |sample|."""

    def __init__(self, spec: FeatureSpec, device: torch.device):
        self.spec = spec

    def __call__(self, waves: Tensor) -> Tensor:
        frames = waves.unfold(-1, self.spec.frame_samples, self.spec.shift_samples)
        return frames.abs().mean(-1, keepdim=True)


class Bangs(Tokenizer):
    def __init__(self, spec: TokenizerSpec, vocab_size: int):
        self._pieces = ["", " bang"]

    def piece(self, token: int) -> str:
        return self._pieces[token]


def load(path: Path) -> Checkpoint:
    threshold = json.loads((path / "loudness.json").read_text(encoding="utf-8"))["threshold"]
    return Checkpoint(
        path=path,
        format=NAME,
        weights_name="loudness.json",
        model=ModelConfig(architecture=NAME, vocab_size=2, blank_id=QUIET, streaming=True, static_chunk_size=0),
        features=FeatureSpec(kind=NAME, num_mel_bins=1, audio_scale=1.0),
        tokenizer=TokenizerSpec(NAME, path, {}),
        cmvn_mean=None,
        cmvn_istd=None,
        state={"threshold": torch.tensor(threshold)},
    )


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Path]:
    """A checkpoint of the family, everything registered for one test."""
    register_checkpoint_format(CheckpointFormat(NAME, lambda path: (path / "loudness.json").is_file(), load))
    register_model(NAME)(
        lambda checkpoint, device, dtype: LoudnessModel(checkpoint.model, float(checkpoint.state["threshold"]))
    )
    register_streaming_runtime(NAME)(CountingRuntime)
    register_decode_strategy(NAME)(RunStrategy)
    register_tokenizer(NAME)(Bangs)
    register_feature_extractor(NAME)(Amplitude)
    register_batching_policy(NAME)(newest_first)
    register_partition_policy(NAME)(one_by_one)
    (tmp_path / "loudness.json").write_text('{"threshold": 0.1}', encoding="utf-8")
    yield tmp_path
    for registry in (FORMATS, MODELS, RUNTIMES, STRATEGIES, TOKENIZERS, EXTRACTORS, POLICIES, PARTITIONS):
        del registry[NAME]


def newest_first(candidates: Iterator[Candidate], limits: BatchLimits) -> list[int]:
    """One at a time, the last that came."""
    return [sum(1 for _ in candidates) - 1]


def one_by_one(lengths: Sequence[int], limits: BatchLimits) -> list[list[int]]:
    """A forward pass a clip, the longest first."""
    return [[index] for index in sorted(range(len(lengths)), key=lambda index: -lengths[index])]


def bangs(*starts: float) -> np.ndarray:
    """Three seconds of silence with a loud half second at each of `starts`."""
    wave = np.zeros(48000, dtype=np.float32)
    for start in starts:
        wave[int(start * 16000) : int((start + 0.5) * 16000)] = 0.5
    return wave


def make_engine(path: Path) -> ASREngine:
    return ASREngine(EngineConfig(ckpt_dir=str(path), decode_method=NAME, schedule_policy=NAME, max_batch_size=4))


def test_a_family_of_its_own_streams_and_transcribes(family: Path) -> None:
    engine = make_engine(family)
    clips = [bangs(0.5, 1.5, 2.2), bangs(), bangs(1.0)]
    expected = ["bang bang bang", "", "bang"]
    assert engine.transcribe(clips) == expected
    assert engine.transcribe_offline(clips) == expected


def test_its_words_have_times(family: Path) -> None:
    (output,) = make_engine(family).transcribe_outputs([bangs(0.5, 1.5)], decoding={"word_timestamps": True})
    assert output.words is not None
    assert [word.word for word in output.words] == ["bang", "bang"]
    assert [word.end for word in output.words] == pytest.approx([0.64, 1.64], abs=0.06)


def test_its_policy_orders_the_offline_queue(family: Path) -> None:
    engine = make_engine(family)
    ids = [engine.add_request(bangs(1.0), streaming=False) for _ in range(3)]
    assert [output.request_id for output in engine.run()] == ids[::-1]


def test_its_partition_cuts_a_batch_and_the_order_is_restored(family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig(ckpt_dir=str(family), decode_method=NAME, partition_policy=NAME, max_batch_size=4)
    engine = ASREngine(config)
    lengths: list[int] = []
    encode = LoudnessModel.encode_clips

    def counting(self: LoudnessModel, features: Tensor, *rest: object) -> Tensor:
        lengths.append(features.shape[1])
        return encode(self, features, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(LoudnessModel, "encode_clips", counting)
    clips = [bangs(0.5)[:24000], bangs(0.5, 1.5, 2.2), bangs(1.0)[:32000]]
    assert engine.transcribe_offline(clips) == ["bang", "bang bang bang", "bang"]
    assert len(lengths) == 3
    assert lengths == sorted(lengths, reverse=True)


def test_packed_rows_are_refused_where_the_family_has_none(family: Path) -> None:
    with pytest.raises(ConfigError, match="loudness cannot run packed rows"):
        ASREngine(
            EngineConfig(ckpt_dir=str(family), decode_method=NAME, service_mode="offline", enable_sequence_packing=True)
        )


def test_rows_are_not_packed_by_themselves_where_the_family_has_none(family: Path) -> None:
    config = EngineConfig(
        ckpt_dir=str(family), decode_method=NAME, service_mode="offline", enable_sequence_packing=None, device="cpu"
    )
    assert ASREngine(config).config.partition_policy == "frames"


def test_its_streams_share_a_step(family: Path) -> None:
    engine = make_engine(family)
    ids = [engine.add_streaming_request() for _ in range(4)]
    for request_id in ids:
        engine.feed_chunk(request_id, bangs(0.5), is_last=True)
    outputs = engine.run()
    assert {output.text for output in outputs} == {"bang"}
    runtime = engine._runner.runtime
    assert isinstance(runtime, CountingRuntime)
    assert runtime.steps <= 1 + 48000 // (64 * 160) + 1
    assert runtime.usage.slots_free == 4
