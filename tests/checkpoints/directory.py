"""A checkpoint directory that can be changed, then loaded as the engine loads it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

import oasr_backend.checkpoints.wenet
import oasr_backend.models.conformer.model
import oasr_backend.tokenizers.symbol_table  # noqa: F401
from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.models.base import AsrModel, build_model
from oasr_backend.tokenizers.base import build_tokenizer

ABSENT = object()


class CheckpointDirectory:
    """`path` holds the files; every change is written at once."""

    def __init__(self, path: Path):
        self.path = path

    def config(self) -> dict[str, Any]:
        return yaml.safe_load((self.path / "train.yaml").read_text(encoding="utf-8"))

    def set(self, key: str, value: Any) -> None:
        """Sets a dotted key of train.yaml, or removes it when `value` is ABSENT."""
        config = self.config()
        *parents, name = key.split(".")
        mapping = config
        for parent in parents:
            mapping = mapping.setdefault(parent, {})
        if value is ABSENT:
            del mapping[name]
        else:
            mapping[name] = value
        (self.path / "train.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")

    def change_state(self, change: Callable[[dict[str, Tensor]], None]) -> None:
        file = self.path / "final.pt"
        state = torch.load(file, weights_only=True)
        change(state)
        torch.save(state, file)

    def load(self) -> Checkpoint:
        """The checkpoint, its tokenizer checked too."""
        checkpoint = load_checkpoint(self.path)
        build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
        return checkpoint

    def build(self) -> AsrModel:
        """The model, all weights accounted for."""
        with torch.inference_mode():
            return build_model(self.load(), torch.device("cpu"), torch.float32)
