"""The facts of a loaded checkpoint."""

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.inspection.facts import AudioFacts, CheckpointFacts, DecoderFacts, EncoderFacts, TrainingFacts
from oasr_backend.inspection.units import kind_of_units
from oasr_backend.models.config import DecoderConfig, EncoderConfig, WenetConfig
from oasr_backend.tokenizers.base import Tokenizer
from oasr_backend.tokenizers.symbol_table import SymbolTable


def checkpoint_facts(checkpoint: Checkpoint, tokenizer: Tokenizer) -> CheckpointFacts:
    """What it is; that its weights fit is for the caller to have seen."""
    model, features = checkpoint.model, checkpoint.features
    wenet = model if isinstance(model, WenetConfig) else None
    numbers = {name: tensor for name, tensor in checkpoint.state.items() if tensor.is_floating_point()}
    has_statistics = checkpoint.cmvn_mean is not None or "encoder.global_cmvn.mean" in checkpoint.state
    return CheckpointFacts(
        path=str(checkpoint.path),
        format=checkpoint.format,
        weights=checkpoint.weights_name,
        megabytes=(checkpoint.path / checkpoint.weights_name).stat().st_size / 1e6,
        parameters=sum(tensor.numel() for name, tensor in numbers.items() if not name.endswith(".pe")),
        architecture=model.architecture,
        encoder=_encoder(wenet.encoder) if wenet else None,
        decoder=_decoder(wenet.decoder) if wenet else None,
        vocabulary=model.vocab_size,
        units=_units(checkpoint, tokenizer),
        training=TrainingFacts(model.streaming, model.static_chunk_size, wenet is not None and wenet.varied_history),
        audio=AudioFacts(
            features.sample_rate,
            features.kind,
            features.dim,
            features.frame_length_ms,
            features.frame_shift_ms,
            has_statistics,
        ),
        quantization=checkpoint.quantization.scheme if checkpoint.quantization else None,
    )


def _encoder(encoder: EncoderConfig) -> EncoderFacts:
    convolution = encoder.convolution
    return EncoderFacts(
        layers=encoder.layers,
        dim=encoder.dim,
        heads=encoder.attention.heads,
        kv_heads=encoder.attention.kv_heads,
        ffn_dim=encoder.ffn_dim,
        macaron=encoder.macaron,
        position=encoder.attention.position,
        kernel=convolution.kernel if convolution else None,
        causal=convolution is not None and convolution.causal,
        convolution_norm=convolution.norm if convolution else None,
        front_end=encoder.front_end,
        rate=encoder.geometry.rate,
    )


def _decoder(decoder: DecoderConfig) -> DecoderFacts:
    return DecoderFacts(decoder.layers, decoder.right_layers, decoder.reverse_weight, decoder.ctc_weight)


def _units(checkpoint: Checkpoint, tokenizer: Tokenizer) -> str:
    if isinstance(tokenizer, SymbolTable):
        return kind_of_units(tokenizer.units)
    return f"{checkpoint.tokenizer.kind} pieces"
