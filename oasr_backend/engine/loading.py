"""A checkpoint made ready for an engine: what the configuration says about it settled."""

import logging
from dataclasses import fields, replace

from oasr_backend.checkpoints.base import Checkpoint, load_checkpoint
from oasr_backend.config import ResolvedConfig
from oasr_backend.decode.base import DecodeSetup, Rescorer
from oasr_backend.engine.decoders import Decoders
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.layers.quantized_linear import require_int8
from oasr_backend.models.base import with_architecture
from oasr_backend.quantization.config import combined
from oasr_backend.quantization.rule import QuantizationRule

log = logging.getLogger(__name__)


def open_checkpoint(config: ResolvedConfig) -> Checkpoint:
    """The checkpoint with the configuration's overrides. Raises CheckpointError or ConfigError."""
    checkpoint = load_checkpoint(config.ckpt_dir, weights_name=config.checkpoint_name, unit_table=config.unit_table)
    if config.architecture is not None:
        checkpoint = with_architecture(checkpoint, config.architecture)
    if config.sentencepiece_model is not None:
        tokenizer = replace(checkpoint.tokenizer, kind="sentencepiece", bpe_model=config.sentencepiece_model)
        checkpoint = replace(checkpoint, tokenizer=tokenizer)
    quantization = combined(config.quantization, checkpoint.quantization)
    if quantization is not None:
        require_int8(config.device)
        QuantizationRule.of(quantization).check(checkpoint.state)
    return replace(checkpoint, features=features_of(config, checkpoint.features), quantization=quantization)


def require_chunks(checkpoint: Checkpoint) -> None:
    """Raises ConfigError for a model that cannot stream."""
    if not checkpoint.model.streaming:
        raise ConfigError(
            "this checkpoint was trained without chunks (use_dynamic_chunk is false), so it cannot stream; serve it "
            "with service_mode='offline' (oasr serve --models audio_decode,oasr_offline,oasr_transcribe)"
        )


def make_decoders(
    config: ResolvedConfig, checkpoint: Checkpoint, rescorer: Rescorer | None, seconds_per_frame: float = 0.04
) -> Decoders:
    """The configured ways to decode. Raises ConfigError for one that is unknown or beyond the model."""
    model = checkpoint.model
    setup = DecodeSetup(model.blank_id, model.vocab_size, rescorer=rescorer, seconds_per_frame=seconds_per_frame)
    given = {"ctc_weight": config.rescoring_ctc_weight, "reverse_weight": config.rescoring_reverse_weight}
    # Weights of the passes where they are not the checkpoint's.
    weights = {name: value for name, value in given.items() if value is not None}
    return Decoders(config.decode_method, setup, config.decode_options, weights)


def features_of(config: ResolvedConfig, own: FeatureSpec) -> FeatureSpec:
    """The checkpoint's features, or explicit ones: they win, with a warning that names what differs."""
    spec = own
    explicit = config.feature_config
    if explicit is not None:
        if explicit.dim != own.dim:
            raise ConfigError(
                f"feature_config gives {explicit.dim} numbers a frame but the model takes {own.dim}; leave it out"
            )
        differing = [field.name for field in fields(own) if getattr(own, field.name) != getattr(explicit, field.name)]
        if differing:
            log.warning("feature_config overrides what the checkpoint was trained with: %s", ", ".join(differing))
        spec = explicit
    if config.audio_scale is not None and config.audio_scale != spec.audio_scale:
        log.warning("audio_scale %g overrides the checkpoint's %g", config.audio_scale, spec.audio_scale)
        spec = replace(spec, audio_scale=config.audio_scale)
    return spec
