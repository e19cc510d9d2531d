"""What may be asked of quantization, and what a checkpoint's own scheme leaves open."""

from typing import Any

import pytest

from oasr_backend.config import EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.quantization.config import INT8, QuantizationConfig, combined

CARRIED = QuantizationConfig(INT8, module_types=("linear", "conv2d"))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, None),
        ({"kv_cache": None}, None),
        (INT8, QuantizationConfig(INT8)),
        ({"scheme": INT8}, QuantizationConfig(INT8)),
        (
            {"scheme": INT8, "ignore": "ctc.*, *.w_1", "module_types": "linear,pointwise_conv"},
            QuantizationConfig(INT8, ("ctc.*", "*.w_1"), ("linear", "pointwise_conv")),
        ),
        ({"scheme": INT8, "ignore": ["ctc.*"]}, QuantizationConfig(INT8, ("ctc.*",))),
    ],
)
def test_what_is_asked(asked: Any, expected: QuantizationConfig | None) -> None:
    assert QuantizationConfig.parse(asked) == expected


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("int4", "scheme must be one of int8_w8a8"),
        ({"scheme": "fp8"}, "scheme must be one of int8_w8a8"),
        ({"ignore": "ctc.*"}, "for a scheme"),
        ({"module_types": "linear"}, "for a scheme"),
        ({"scheme": INT8, "module_types": "lstm"}, "module_types must be of linear"),
        ({"scheme": INT8, "module_types": 3}, "must be text like a,b"),
        ({"scheme": INT8, "ignore": " , "}, "ignore is empty"),
        ({"scheme": INT8, "bits": 4}, "bits is none of"),
        ({"kv_cache": "fp8_e4m3"}, "no decode family with a KV cache"),
        ({"scheme": INT8, "kv_cache": "fp8_e4m3"}, "no decode family with a KV cache"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(asked: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(quantization=asked)
    message = str(caught.value)
    assert message.startswith("quantization is ")
    assert reason in message
    assert "\n" not in message


def test_none_and_its_own_scheme_follow_the_checkpoint() -> None:
    assert combined(None, CARRIED) == combined(QuantizationConfig(INT8), CARRIED) == CARRIED
    assert combined(None, None) is None
    assert combined(QuantizationConfig(INT8), None) == QuantizationConfig(INT8)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (QuantizationConfig("another"), "'another' but the checkpoint was written with 'int8_w8a8'"),
        (QuantizationConfig(INT8, ignore=("ctc.*",)), "has ignore, but"),
        (QuantizationConfig(INT8, module_types=("linear", "conv2d")), "has module_types, but"),
    ],
)
def test_a_quantized_checkpoint_takes_nothing_else(asked: QuantizationConfig, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        combined(asked, CARRIED)


def test_convolutions_need_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match="a checkpoint must bring conv2d: write one with `oasr quantize`"):
        combined(QuantizationConfig(INT8, module_types=("linear", "conv2d")), None)
