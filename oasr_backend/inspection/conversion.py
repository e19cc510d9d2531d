"""Checkpoints written as native bundles."""

from dataclasses import replace
from pathlib import Path

from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.quantization.config import CHECKPOINT_KINDS, DEFAULT_KINDS, QuantizationConfig
from oasr_backend.quantization.rule import QuantizationRule


def convert(source: Path, target: Path) -> None:
    """Writes a native bundle of a checkpoint, after loading it whole. Raises CheckpointError or ConfigError."""
    ASREngine(EngineConfig(ckpt_dir=str(source), service_mode="offline", dtype="float32")).shutdown()
    save_bundle(load_checkpoint(source), target)


def quantize(source: Path, target: Path, scheme: str, ignore: str | None, module_types: str | None) -> None:
    """Writes a native bundle whose weights are quantized, after loading the checkpoint whole.

    `ignore` and `module_types` as in the setting `quantization`; all kinds that gain by it unless named. Raises
    CheckpointError or ConfigError.
    """
    kinds = module_types if module_types is not None else ",".join((*DEFAULT_KINDS, *CHECKPOINT_KINDS))
    asked = QuantizationConfig.parse({"scheme": scheme, "ignore": ignore, "module_types": kinds})
    ASREngine(EngineConfig(ckpt_dir=str(source), service_mode="offline", dtype="float32")).shutdown()
    checkpoint = load_checkpoint(source)
    if checkpoint.quantization is not None:
        raise ConfigError(f"{source} is quantized already ({checkpoint.quantization.scheme}); quantize its original")
    QuantizationRule.of(asked).check(checkpoint.state)
    save_bundle(replace(checkpoint, quantization=asked), target)
