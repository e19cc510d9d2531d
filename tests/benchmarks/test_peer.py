"""The peer under onnxruntime computes what the engine computes."""

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the bench extra is not installed")
pytest.importorskip("onnxruntime", reason="the bench extra is not installed")

from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.peer_check import TOLERANCE, chunk_log_probs, clip_log_probs, compare, engine_log_probs
from benchmarks.peer_export import ChunkShape, export_chunks, export_clips
from benchmarks.peer_session import ChunkSession, ClipSession


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("model"), layers=2, dim=32, ffn=64, vocabulary=40)


@pytest.mark.parametrize("left_chunks", [2, 4])
@pytest.mark.parametrize("batch", [1, 3])
def test_chunk_by_chunk(checkpoint: Path, tmp_path: Path, batch: int, left_chunks: int) -> None:
    path = export_chunks(checkpoint, tmp_path, ChunkShape(batch, 16, left_chunks), "float32")
    found = chunk_log_probs(ChunkSession(path, 1), checkpoint)
    assert compare(found, engine_log_probs(checkpoint, left_chunks, streaming=True)).difference < TOLERANCE


def test_whole_clips(checkpoint: Path, tmp_path: Path) -> None:
    found = clip_log_probs(ClipSession(export_clips(checkpoint, tmp_path, "float32"), 1), checkpoint)
    assert compare(found, engine_log_probs(checkpoint, -1, streaming=False)).difference < TOLERANCE
