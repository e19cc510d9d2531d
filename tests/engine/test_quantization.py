"""Quantized models through the engine, chosen by the user or carried by the checkpoint."""

from functools import cache
from pathlib import Path

import jiwer
import pytest
import torch

from oasr_backend.checkpoints.base import load_checkpoint
from oasr_backend.checkpoints.bundle import save_bundle
from oasr_backend.engine import ASREngine
from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.inspection import open_check, quantize
from oasr_backend.layers.quantized_linear import QuantizedLinear
from oasr_backend.quantization.config import INT8, QuantizationConfig
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.engine.engines import TINY, assert_idle, demo_engine, every, make_engine, stream
from tests.engine.test_demo import TEXTS, clip

TOLERANCE = 0.25


@cache
def int8_engine() -> ASREngine:
    return make_engine(demo_checkpoint_dir(), quantization=INT8, finalize_silence_pad=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("quantized") / "bundle"
    quantize(demo_checkpoint_dir(), path, INT8, None, None)
    return path


@pytest.mark.parametrize("streaming", [True, False])
def test_clips_are_understood_alone_and_batched(streaming: bool) -> None:
    engine = int8_engine()
    together = engine.transcribe([clip(name) for name in TEXTS], streaming)
    for name, text in zip(TEXTS, together, strict=True):
        assert jiwer.wer(TEXTS[name], text) <= TOLERANCE
        assert engine.transcribe(clip(name), streaming) == text
    assert_idle(engine)


def test_a_stream_in_pieces_gives_the_text_of_the_whole() -> None:
    engine = int8_engine()
    for name in TEXTS:
        assert stream(engine, every(clip(name), 1600)).text == engine.transcribe(clip(name), True)


def test_the_attention_decoder_is_quantized_too() -> None:
    for name in TEXTS:
        (output,) = int8_engine().transcribe_outputs([clip(name)], decoding={"decode_method": "attention_rescoring"})
        assert jiwer.wer(TEXTS[name], output.text) <= TOLERANCE


def test_bfloat16_goes_with_it() -> None:
    engine = make_engine(demo_checkpoint_dir(), quantization=INT8, dtype="bfloat16", finalize_silence_pad=True)
    for name in TEXTS:
        assert jiwer.wer(TEXTS[name], engine.transcribe(clip(name))) <= TOLERANCE


def test_a_written_checkpoint_is_served_quantized_with_no_flag(bundle: Path) -> None:
    engine = make_engine(bundle, finalize_silence_pad=True)
    named = make_engine(bundle, quantization=INT8, finalize_silence_pad=True)
    for name in TEXTS:
        (output,), (same,) = (one.transcribe_outputs([clip(name)]) for one in (engine, named))
        assert jiwer.wer(TEXTS[name], output.text) <= TOLERANCE
        assert (output.text, output.scores) == (same.text, same.scores)
        (exact,) = demo_engine().transcribe_outputs([clip(name)])
        assert output.scores != exact.scores


def test_it_is_small_and_says_what_it_is(bundle: Path) -> None:
    source = demo_checkpoint_dir()
    assert (bundle / "model.safetensors").stat().st_size < 0.4 * (source / "final.pt").stat().st_size
    assert load_checkpoint(bundle).quantization == QuantizationConfig(
        INT8, None, ("linear", "pointwise_conv", "conv2d")
    )
    assert open_check(str(bundle), max_batch_size=1).checkpoint.quantization == INT8


def test_written_and_online_give_the_same_numbers(tmp_path: Path) -> None:
    """The weights of a checkpoint are rounded once, whoever does it."""
    quantize(TINY, tmp_path / "bundle", INT8, None, "linear,pointwise_conv")
    online = make_engine(TINY, quantization=INT8)
    written = make_engine(tmp_path / "bundle")
    (expected,), (actual,) = (one.transcribe_outputs([clip("digits.flac")]) for one in (online, written))
    assert actual.tokens == expected.tokens
    torch.testing.assert_close(torch.tensor(actual.scores), torch.tensor(expected.scores), atol=1e-3, rtol=0)


def test_a_bundle_of_a_bundle_is_the_same(bundle: Path, tmp_path: Path) -> None:
    save_bundle(load_checkpoint(bundle), tmp_path / "again")
    first, second = load_checkpoint(bundle), load_checkpoint(tmp_path / "again")
    assert first.quantization == second.quantization
    for name, tensor in first.state.items():
        torch.testing.assert_close(second.state[name], tensor, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"scheme": INT8, "ignore": "ctc.*"}, "has ignore, but"),
        ({"scheme": INT8, "module_types": "linear"}, "has module_types, but"),
    ],
)
def test_a_written_checkpoint_takes_no_other_choice(bundle: Path, asked: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        make_engine(bundle, quantization=asked)


def test_what_the_model_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no layer's name fits"):
        make_engine(TINY, quantization={"scheme": INT8, "ignore": "decode.*"})
    with pytest.raises(ConfigError, match="write one with `oasr quantize`"):
        make_engine(TINY, quantization={"scheme": INT8, "module_types": "conv2d"})


def test_ignored_layers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = QuantizedLinear.__init__

    def counting(self: QuantizedLinear, *args: object, **kwargs: object) -> None:
        made.append(args[0].shape)  # type: ignore[attr-defined]
        original(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(QuantizedLinear, "__init__", counting)
    make_engine(TINY)
    assert not made
    make_engine(TINY, quantization=INT8)
    everything = len(made)
    made.clear()
    make_engine(TINY, quantization={"scheme": INT8, "ignore": "decoder.*"})
    assert 0 < len(made) < everything


def test_nothing_is_quantized_twice_or_written_over(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is quantized already"):
        quantize(bundle, tmp_path / "again", INT8, None, None)
    with pytest.raises(CheckpointError, match="not empty"):
        quantize(TINY, bundle, INT8, None, None)
    with pytest.raises(ConfigError, match="scheme must be one of"):
        quantize(TINY, tmp_path / "again", "int4", None, None)
    assert not (tmp_path / "again").exists()


def test_weights_without_their_scales_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    quantize(TINY, tmp_path / "bundle", INT8, None, None)
    file = tmp_path / "bundle" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(file).items() if not name.endswith("_scale")}, file)
    with pytest.raises(CheckpointError, match="has no scale for each row of"):
        load_checkpoint(tmp_path / "bundle")
