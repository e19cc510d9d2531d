"""Whether the peer computes what the engine computes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peer_features import features_of, padded
from benchmarks.peer_session import ChunkSession, ClipSession
from benchmarks.streams import CHUNK_FRAMES, noise
from oasr_backend.decode.base import STRATEGIES, DecodeSession, DecodeSetup, register_decode_strategy
from oasr_backend.decode.greedy import GreedyStrategy
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine import ASREngine, EngineConfig

TOLERANCE = 1e-3
_SECONDS = 6.0
_recorded: list[np.ndarray] = []


_METHOD = "benchmark_log_probs"


class LogProbs(GreedyStrategy):
    """Greedy decoding of one stream or clip at a time that keeps every log-probability in `_recorded`."""

    def __init__(self, setup: DecodeSetup):
        super().__init__(setup)
        self.needs = Needs(log_probs=True)

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        assert scores.full is not None
        _recorded.append(scores.full[0, : frames[0]].numpy().copy())
        best = scores.full.max(-1, keepdim=True)
        super().advance(sessions, FrameScores(tokens=best.indices, log_probs=best.values), frames)


@dataclass(frozen=True)
class Agreement:
    """The largest difference of a log-probability, and the share of frames with the same best token."""

    difference: float
    same_best: float


def engine_log_probs(checkpoint: Path, left_chunks: int, streaming: bool) -> np.ndarray:
    """[frames, V] of a few seconds of noise through the engine in float32."""
    register_decode_strategy(_METHOD)(LogProbs)
    try:
        engine = ASREngine(
            EngineConfig(
                ckpt_dir=str(checkpoint),
                dtype="float32",
                max_batch_size=1,
                chunk_size=CHUNK_FRAMES,
                num_left_chunks=left_chunks,
                finalize_silence_pad=False,
                decode_method=_METHOD,
            )
        )
    finally:
        # It is a choice for nobody else in this process.
        del STRATEGIES[_METHOD]
    _recorded.clear()
    engine.transcribe_outputs([noise(_SECONDS)], streaming=streaming)
    return np.concatenate(_recorded)


def chunk_log_probs(session: ChunkSession, checkpoint: Path) -> np.ndarray:
    """The same of the peer, every row of its batch fed the same; whole chunks only."""
    (features,), geometry = features_of(checkpoint, [noise(_SECONDS)])
    window, stride = geometry.window(session.chunk), geometry.stride(session.chunk)
    session.restart()
    parts = []
    for start in range(0, len(features) - window + 1, stride):
        batch = np.repeat(features[None, start : start + window], session.batch, axis=0)
        # The last row: in a batch it must not depend on its mates.
        parts.append(session.call(batch)[-1].copy())
    return np.concatenate(parts)


def clip_log_probs(session: ClipSession, checkpoint: Path) -> np.ndarray:
    """The same of the peer for whole clips, beside a longer one."""
    both, geometry = features_of(checkpoint, [noise(_SECONDS + 1), noise(_SECONDS)])
    frames = [geometry.frames_out(len(one)) for one in both]
    return session.call(padded(both), frames)[1, : frames[1]]


def compare(found: np.ndarray, expected: np.ndarray) -> Agreement:
    """Over the frames that both have."""
    count = min(len(found), len(expected))
    difference = float(np.abs(found[:count] - expected[:count]).max())
    return Agreement(difference, float((found[:count].argmax(-1) == expected[:count].argmax(-1)).mean()))
