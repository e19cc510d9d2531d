"""What a checkpoint is, and what would be used to serve it here."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.engine import ASREngine, EngineConfig, RequestOutput
from oasr_backend.errors import ConfigError
from oasr_backend.models.config import WenetConfig
from oasr_backend.quantization.config import CHECKPOINT_KINDS, DEFAULT_KINDS, QuantizationConfig
from oasr_backend.quantization.rule import QuantizationRule
from oasr_backend.utils.host import processor_name


@dataclass(frozen=True)
class Fact:
    """One line of a report."""

    name: str
    value: str


@dataclass(frozen=True)
class Inspection:
    """A checkpoint that was loaded whole, every weight accounted for."""

    facts: tuple[Fact, ...]
    engine: ASREngine

    def transcribe(self, samples: object) -> RequestOutput:
        """Text and words of a clip [N] at the model's rate, streamed where the model streams, else offline."""
        (output,) = self.engine.transcribe_outputs(
            [samples], streaming=self.engine.config.streaming, decoding={"word_timestamps": True}
        )
        return output


def inspect(path: Path, max_sequences: int) -> Inspection:
    """Loads a checkpoint as a server would. Raises CheckpointError or ConfigError."""
    checkpoint = load_checkpoint(path)
    engine = ASREngine(EngineConfig(ckpt_dir=str(path), max_batch_size=max_sequences, recycle_streaming_history=True))
    return Inspection((*_of_checkpoint(checkpoint), *_of_engine(engine)), engine)


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


def _of_checkpoint(checkpoint: Checkpoint) -> Iterator[Fact]:
    model = checkpoint.model
    yield Fact("format", checkpoint.format)
    yield Fact("architecture", model.architecture)
    if isinstance(model, WenetConfig):
        yield from _of_wenet(model)
    yield Fact("vocabulary", f"{model.vocab_size} {checkpoint.tokenizer.kind} units")
    if checkpoint.quantization is not None:
        yield Fact("quantization", checkpoint.quantization.scheme)
    weights = sum(tensor.numel() for tensor in checkpoint.state.values())
    size = (checkpoint.path / checkpoint.weights_name).stat().st_size
    yield Fact("size", f"{weights / 1e6:.2f} million numbers, {size / 1e6:.1f} MB")
    features = checkpoint.features
    yield Fact(
        "audio",
        f"{features.sample_rate} Hz mono; {features.dim} {features.kind} numbers per "
        f"{features.frame_length_ms:g} ms every {features.frame_shift_ms:g} ms",
    )


def _of_wenet(model: WenetConfig) -> Iterator[Fact]:
    encoder, decoder = model.encoder, model.decoder
    parts = [
        f"{encoder.layers} layers of {encoder.dim}",
        f"{encoder.attention.heads} heads",
        encoder.attention.position,
    ]
    if encoder.convolution is not None:
        side = "causal" if encoder.convolution.causal else "centred"
        parts.append(f"{side} convolution of {encoder.convolution.kernel} ({encoder.convolution.norm})")
    yield Fact("encoder", ", ".join(parts))
    yield Fact("front end", f"{encoder.front_end}, one encoder frame per {encoder.geometry.rate} feature frames")
    if model.static_chunk_size:
        chunks = f"{model.static_chunk_size} frames"
    else:
        chunks = "any (dynamic)" if model.streaming else "none: offline only"
    yield Fact("chunks trained for", chunks)
    kind = f"U2++, {decoder.layers} + {decoder.right_layers}" if decoder.bidirectional else f"U2, {decoder.layers}"
    yield Fact("decoder", f"{kind} layers")


def _of_engine(engine: ASREngine) -> Iterator[Fact]:
    config = engine.config
    device = processor_name() if config.device.type == "cpu" else str(config.device)
    yield Fact("device", f"{device}, {config.num_threads} threads" if config.device.type == "cpu" else device)
    yield Fact("dtype", str(config.dtype).removeprefix("torch."))
    if not config.streaming:
        yield Fact("streams", "none")
        return
    gauges = engine.metrics_snapshot().gauges
    pages = gauges["engine_kv_blocks_capacity"]
    minutes = pages / config.max_batch_size * config.block_size_frames * engine.seconds_per_frame / 60
    yield Fact(
        "streams",
        f"{config.max_batch_size} at once, each sees its last {minutes:.1f} minutes ({pages:.0f} pages of cache)",
    )
    chunk_ms = config.chunk_size * engine.seconds_per_frame * 1000
    yield Fact("send", f"chunks of any length; the engine works in steps of {chunk_ms:.0f} ms")
