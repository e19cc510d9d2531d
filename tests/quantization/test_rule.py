"""Which layers are quantized."""

import pytest

from oasr_backend.errors import ConfigError
from oasr_backend.quantization.config import INT8, LAYER_KINDS, QuantizationConfig
from oasr_backend.quantization.rule import QuantizationRule, kind_of, module_of
from tests.golden.cases import CASES, GoldenCase

ATTENTION = "encoder.encoders.3.self_attn"


def rule(**options: tuple[str, ...]) -> QuantizationRule:
    return QuantizationRule.of(QuantizationConfig(INT8, **options))


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        ("encoder.embed.conv.0", None),
        ("encoder.embed.conv.2", "conv2d"),
        ("encoder.embed.conv.4", "conv2d"),
        ("encoder.embed.out.0", "linear"),
        ("encoder.embed.linear", "linear"),
        (f"{ATTENTION}.linear_q", "linear"),
        (f"{ATTENTION}.linear_pos", "linear"),
        ("encoder.encoders.0.feed_forward_macaron.w_1", "linear"),
        ("encoder.encoders.0.conv_module.pointwise_conv2", "pointwise_conv"),
        ("encoder.encoders.0.conv_module.depthwise_conv", None),
        ("encoder.encoders.0.norm_ff", None),
        ("ctc.ctc_lo", "head"),
        ("decoder.output_layer", "head"),
        ("decoder.right_decoder.output_layer", "head"),
        ("decoder.left_decoder.embed.0", None),
        ("decoder.left_decoder.decoders.1.src_attn.linear_out", "linear"),
    ],
)
def test_kinds_by_name(module: str, kind: str | None) -> None:
    assert kind_of(module) == kind
    assert module_of(f"{module}.weight") == (module if kind else None)
    assert module_of(f"{module}.bias") is None


@pytest.mark.parametrize("name", CASES)
def test_every_matrix_of_a_checkpoint_has_a_kind(name: str) -> None:
    """All but embeddings, depthwise and first convolutions, and position biases per head."""
    for weight, tensor in GoldenCase(name).checkpoint.state.items():
        if tensor.dim() < 2 or "pos_bias" in weight or weight.endswith(".pe"):
            assert module_of(weight) is None
        elif not any(part in weight for part in (".embed.0.", "depthwise", "embed.conv.0.", "concat_linear")):
            assert module_of(weight) is not None, weight


def test_nothing_is_covered_by_default() -> None:
    assert not QuantizationRule().covers("encoder.embed.out.0")
    assert QuantizationRule.of(None) == QuantizationRule()


def test_kinds_select() -> None:
    modules = {
        "linear": f"{ATTENTION}.linear_q",
        "pointwise_conv": "encoder.encoders.0.conv_module.pointwise_conv1",
        "conv2d": "encoder.embed.conv.2",
        "head": "ctc.ctc_lo",
    }
    assert tuple(modules) == LAYER_KINDS
    assert [kind for kind, module in modules.items() if rule().covers(module)] == ["linear", "pointwise_conv"]
    for kind in modules:
        assert [one for one, module in modules.items() if rule(module_types=(kind,)).covers(module)] == [kind]


def test_ignored_globs_stay() -> None:
    some = rule(ignore=("encoder.encoders.3.*", "*.w_2"))
    assert not some.covers(f"{ATTENTION}.linear_q")
    assert not some.covers("encoder.encoders.4.feed_forward.w_2")
    assert some.covers("encoder.encoders.4.feed_forward.w_1")


def test_a_product_of_many_layers_needs_them_all() -> None:
    parts = [f"{ATTENTION}.linear_{part}" for part in "qkv"]
    assert rule().covers(*parts)
    assert not rule(ignore=("*.linear_v",)).covers(*parts)


def test_a_glob_that_fits_nothing_and_a_rule_that_covers_nothing_are_refused() -> None:
    weights = [f"{ATTENTION}.linear_q.weight", "ctc.ctc_lo.weight", "ctc.ctc_lo.bias"]
    rule(ignore=("ctc.*",)).check(weights)
    with pytest.raises(ConfigError, match=r"'decoder\.\*'"):
        rule(ignore=("decoder.*",)).check(weights)
    with pytest.raises(ConfigError, match="selects no layer"):
        rule(ignore=("*",)).check(weights)
    with pytest.raises(ConfigError, match="selects no layer"):
        rule().check(["somebody.elses.weight"])
