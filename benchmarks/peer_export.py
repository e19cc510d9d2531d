"""ONNX files of the peer, and their int8 copies."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

import oasr_backend.checkpoints.wenet  # noqa: F401 (registers the format)
from benchmarks.peer_model import ChunkPeer, ClipPeer
from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.models.config import WenetConfig

_OPSET = 17


@dataclass(frozen=True)
class ChunkShape:
    """The shapes that are frozen into a chunk-wise export."""

    batch: int
    chunk: int
    left_chunks: int

    @property
    def cached(self) -> int:
        """Encoder frames of the attention cache."""
        return self.chunk * self.left_chunks


def export_chunks(checkpoint: Path, directory: Path, shape: ChunkShape, precision: str) -> Path:
    """The chunk-wise model, every shape fixed: the most that onnxruntime can optimise."""
    path = directory / f"chunk-b{shape.batch}-float32.onnx"
    if not path.is_file():
        config, loaded = _load(checkpoint)
        encoder = config.encoder
        assert encoder.convolution is not None
        heads, dim = encoder.attention.heads, encoder.attention.head_dim
        window = encoder.geometry.window(shape.chunk)
        inputs = (
            torch.randn(shape.batch, window, encoder.input_dim),
            torch.full((shape.batch,), shape.cached, dtype=torch.int64),
            torch.zeros(encoder.layers, shape.batch, heads, shape.cached, 2 * dim),
            torch.zeros(encoder.layers, shape.batch, encoder.convolution.history, encoder.dim),
            torch.ones(shape.batch, 1, 1, shape.cached + shape.chunk, dtype=torch.bool),
        )
        names = ["chunk", "offset", "att_cache", "cnn_cache", "att_mask"]
        _export(ChunkPeer(config, loaded.state), inputs, path, names, ["log_probs", "r_att_cache", "r_cnn_cache"], {})
    return path if precision == "float32" else quantized(path)


def export_clips(checkpoint: Path, directory: Path, precision: str) -> Path:
    """The full-utterance model, for any batch of any length."""
    path = directory / "clips-float32.onnx"
    if not path.is_file():
        config, loaded = _load(checkpoint)
        inputs = (torch.randn(2, 323, config.encoder.input_dim), torch.tensor([80, 60]))
        axes = {
            "features": {0: "batch", 1: "time"},
            "lengths": {0: "batch"},
            "log_probs": {0: "batch", 1: "frames"},
        }
        _export(ClipPeer(config, loaded.state), inputs, path, ["features", "lengths"], ["log_probs"], axes)
    return path if precision == "float32" else quantized(path)


def quantized(path: Path) -> Path:
    """The model with its matrix products in int8: weights once, activations as they come; convolutions stay float."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    to = path.with_name(path.name.replace("float32", "int8"))
    if not to.is_file():
        # Unsigned weights, as WeNet exports them: without VNNI signed ones may saturate.
        quantize_dynamic(path, to, op_types_to_quantize=["MatMul", "Gemm"], weight_type=QuantType.QUInt8)
    return to


def _load(checkpoint: Path) -> tuple[WenetConfig, Checkpoint]:
    loaded = load_checkpoint(checkpoint)
    assert isinstance(loaded.model, WenetConfig)
    return loaded.model, loaded


def _export(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    path: Path,
    input_names: list[str],
    output_names: list[str],
    axes: dict[str, dict[int, str]],
) -> None:
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        # Tracing warns of every shape that it takes for a constant, which here all are.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            inputs,
            path,
            input_names=input_names,
            output_names=output_names,
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
