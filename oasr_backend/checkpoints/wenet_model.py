"""The architecture that a WeNet train.yaml describes; what cannot be honoured is refused by name."""

from typing import Any, cast

from oasr_backend.checkpoints.yaml_fields import ADVICE, Fields
from oasr_backend.errors import CheckpointError
from oasr_backend.models.config import (
    Activation,
    AttentionConfig,
    ConvolutionConfig,
    ConvolutionNorm,
    DecoderConfig,
    EncoderConfig,
    Position,
    WenetConfig,
)
from oasr_backend.models.geometry import FRONT_ENDS

# Options that change the maths and are only supported at these values.
_FIXED_ENCODER_OPTIONS: dict[str, Any] = {
    "concat_after": False,
    "conv_inner_factor": 2,
    "mlp_type": "position_wise_feed_forward",
    "layer_norm_type": "layer_norm",
    "norm_eps": 1e-5,
}
_FIXED_DECODER_OPTIONS: dict[str, Any] = {
    "input_layer": "embed",
    "use_output_layer": True,
    "src_attention": True,
    "concat_after": False,
    "query_bias": True,
    "key_bias": True,
    "value_bias": True,
    "mlp_bias": True,
    "activation_type": "relu",
    "n_kv_head": None,
    "head_dim": None,
    "mlp_type": "position_wise_feed_forward",
    "layer_norm_type": "layer_norm",
    "norm_eps": 1e-5,
    "tie_word_embedding": False,
}
# The attention class that each position encoding goes with.
_ATTENTION: dict[str, str] = {
    "rel_pos": "rel_selfattn",
    "abs_pos": "selfattn",
    "no_pos": "selfattn",
    "rope_pos": "rope_abs_selfattn",
}


def model_config(config: Fields) -> WenetConfig:
    """Raises CheckpointError for whatever is missing, contradictory or not supported."""
    vocab_size = config.integer("output_dim")
    special = config.sub("tokenizer_conf").sub("special_tokens")
    options = config.sub("encoder_conf")
    dynamic, static_chunk = options.flag("use_dynamic_chunk", False), options.integer("static_chunk_size", 0, minimum=0)
    architecture = config.choice("encoder", "conformer", ("conformer", "transformer"), ADVICE)
    return WenetConfig(
        architecture=architecture,
        vocab_size=vocab_size,
        blank_id=config.sub("ctc_conf").token("ctc_blank_id", 0, vocab_size),
        streaming=dynamic or static_chunk > 0,
        static_chunk_size=0 if dynamic else static_chunk,
        # Without a list of special tokens <sos/eos> is the last unit.
        sos_id=special.token("<sos>", vocab_size - 1, vocab_size),
        eos_id=special.token("<eos>", vocab_size - 1, vocab_size),
        encoder=_encoder(config, architecture),
        decoder=_decoder(config),
        varied_history=options.flag("use_dynamic_left_chunk", False),
    )


def _encoder(config: Fields, architecture: str) -> EncoderConfig:
    options = config.sub("encoder_conf")
    options.refuse_unless(_FIXED_ENCODER_OPTIONS)
    conformer = architecture == "conformer"
    front_end = options.choice("input_layer", "conv2d", tuple(FRONT_ENDS), ADVICE)
    activation = options.choice("activation_type", "swish" if conformer else "relu", ("swish", "relu", "gelu"), ADVICE)
    return EncoderConfig(
        input_dim=config.integer("input_dim", 80),
        dim=options.integer("output_size", 256),
        layers=options.integer("num_blocks", 6),
        attention=_attention(options, conformer),
        ffn_dim=options.integer("linear_units", 2048),
        ffn_bias=options.flag("mlp_bias", True),
        activation=cast(Activation, activation),
        macaron=conformer and options.flag("macaron_style", True),
        convolution=_convolution(options) if conformer and options.flag("use_cnn_module", True) else None,
        normalize_before=options.flag("normalize_before", True),
        final_norm=options.flag("final_norm", True),
        front_end=front_end,
        geometry=FRONT_ENDS[front_end],
    )


def _attention(options: Fields, conformer: bool) -> AttentionConfig:
    position = options.choice("pos_enc_layer_type", "rel_pos" if conformer else "abs_pos", tuple(_ATTENTION), ADVICE)
    default = "rel_selfattn" if conformer else "selfattn"
    given = options.raw("selfattention_layer_type", default)
    if given != _ATTENTION[position]:
        raise CheckpointError(
            f"encoder_conf: selfattention_layer_type: {given!r} is not supported with pos_enc_layer_type: "
            f"{position!r} (supported: {_ATTENTION[position]}); {ADVICE}"
        )
    dim, heads = options.integer("output_size", 256), options.integer("attention_heads", 4)
    head_dim = options.raw("head_dim")
    if head_dim is None and dim % heads:
        raise CheckpointError(f"encoder_conf: output_size {dim} is not a multiple of attention_heads {heads}")
    kv_heads = heads if options.raw("n_kv_head") is None else options.integer("n_kv_head")
    if heads % kv_heads:
        raise CheckpointError(f"encoder_conf: attention_heads {heads} is not a multiple of n_kv_head {kv_heads}")
    return AttentionConfig(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim // heads if head_dim is None else options.integer("head_dim"),
        position=cast(Position, position),
        query_bias=options.flag("query_bias", True),
        key_bias=options.flag("key_bias", True),
        value_bias=options.flag("value_bias", True),
    )


def _convolution(options: Fields) -> ConvolutionConfig:
    kernel, causal = options.integer("cnn_module_kernel", 15), options.flag("causal", False)
    if not causal and kernel % 2 == 0:
        raise CheckpointError(f"encoder_conf: cnn_module_kernel {kernel} is even, which only a causal convolution has")
    norm = options.choice("cnn_module_norm", "batch_norm", ("batch_norm", "layer_norm"), ADVICE)
    return ConvolutionConfig(kernel, causal, cast(ConvolutionNorm, norm), options.flag("conv_bias", True))


def _decoder(config: Fields) -> DecoderConfig:
    kind = config.choice("decoder", "bitransformer", ("transformer", "bitransformer"), ADVICE)
    options = config.sub("decoder_conf")
    options.refuse_unless(_FIXED_DECODER_OPTIONS)
    model = config.sub("model_conf")
    return DecoderConfig(
        bidirectional=kind == "bitransformer",
        heads=options.integer("attention_heads", 4),
        ffn_dim=options.integer("linear_units", 2048),
        layers=options.integer("num_blocks", 6),
        right_layers=options.integer("r_num_blocks", 0, minimum=0) if kind == "bitransformer" else 0,
        normalize_before=options.flag("normalize_before", True),
        reverse_weight=model.number("reverse_weight", 0.0),
        ctc_weight=model.number("ctc_weight", 0.5),
    )
