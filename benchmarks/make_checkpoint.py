"""A WeNet U2++ checkpoint with random weights, of the size that speed is measured at.

    python -m benchmarks.make_checkpoint DIR [--layers 12] [--dim 256] [--vocabulary 5000]

4 heads, 2,048 feed-forward units, causal convolutions of kernel 8 with layer norm, conv2d, a bitransformer decoder of
3 + 3 layers. Says nothing about accuracy.
"""

import argparse
import math
from pathlib import Path

import torch
import yaml
from torch import Tensor

import oasr_backend.models.wenet as wenet
from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.checkpoints.weights import WeightReader
from oasr_backend.engine import engine  # noqa: F401 (registers the architectures)
from oasr_backend.models.base import build_model


class _Inventor(WeightReader):
    """Makes up every weight that a model asks for, scaled so that activations keep their size."""

    def __init__(self, made: dict[str, Tensor]):
        super().__init__({}, "made up")
        self._made = made
        self._generator = torch.Generator().manual_seed(0)

    def take(self, name: str, *shape: int) -> Tensor:
        is_gain = name.endswith("weight") and len(shape) == 1
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
        noise = torch.randn(shape, generator=self._generator)
        self._made[name] = torch.ones(shape) if is_gain else noise * (fan_in**-0.5 if len(shape) > 1 else 0.1)
        return self._made[name].clone()

    def close(self) -> None:
        """Nothing is missing."""


def make_checkpoint(path: Path, layers: int = 12, dim: int = 256, ffn: int = 2048, vocabulary: int = 5000) -> Path:
    """Writes train.yaml, units.txt and final.pt into `path`; leaves it alone when it holds a checkpoint already."""
    if (path / "final.pt").is_file():
        return path
    path.mkdir(parents=True, exist_ok=True)
    document = {
        "input_dim": 80,
        "output_dim": vocabulary,
        "encoder": "conformer",
        "encoder_conf": {
            "output_size": dim,
            "attention_heads": 4,
            "linear_units": ffn,
            "num_blocks": layers,
            "input_layer": "conv2d",
            "normalize_before": True,
            "activation_type": "swish",
            "pos_enc_layer_type": "rel_pos",
            "selfattention_layer_type": "rel_selfattn",
            "cnn_module_kernel": 8,
            "cnn_module_norm": "layer_norm",
            "causal": True,
            "use_cnn_module": True,
            "use_dynamic_chunk": True,
        },
        "decoder": "bitransformer",
        "decoder_conf": {"attention_heads": 4, "linear_units": ffn, "num_blocks": 3, "r_num_blocks": 3},
        "model_conf": {"ctc_weight": 0.3, "reverse_weight": 0.3},
        "tokenizer": "char",
        "tokenizer_conf": {"special_tokens": {"<blank>": 0, "<unk>": 1, "<sos>": 2, "<eos>": 2}},
        "dataset_conf": {"fbank_conf": {"num_mel_bins": 80, "frame_length": 25, "frame_shift": 10, "dither": 0.0}},
    }
    (path / "train.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    units = ["<blank>", "<unk>", "<sos/eos>", *(f"u{index}" for index in range(3, vocabulary))]
    lines = "".join(f"{unit} {index}\n" for index, unit in enumerate(units))
    (path / "units.txt").write_text(lines, encoding="utf-8")
    torch.save({}, path / "final.pt")
    made: dict[str, Tensor] = {}
    original = wenet.WeightReader
    try:
        wenet.WeightReader = lambda state, source, quantization: _Inventor(made)  # type: ignore[assignment, misc]
        build_model(load_checkpoint(path), torch.device("cpu"), torch.float32)
    finally:
        wenet.WeightReader = original  # type: ignore[misc]
    torch.save(made, path / "final.pt")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=5000)
    arguments = parser.parse_args()
    made = make_checkpoint(
        arguments.directory, arguments.layers, arguments.dim, 8 * arguments.dim, arguments.vocabulary
    )
    print(made)


if __name__ == "__main__":
    main()
