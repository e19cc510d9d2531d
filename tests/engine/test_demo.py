"""The bundled checkpoint on the bundled clips."""

import json
from functools import cache

import jiwer
import numpy as np
import pytest
import soundfile

from oasr_backend.engine import ASREngine
from oasr_backend.utils.paths import assets_dir, demo_checkpoint_dir
from tests.engine.engines import assert_idle, demo_engine, every, make_engine, stream

TEXTS: dict[str, str] = json.loads((assets_dir() / "clips" / "clips.json").read_text(encoding="utf-8"))
# One word in each clip at most.
TOLERANCE = 0.25


@cache
def clip(name: str) -> np.ndarray:
    samples, rate = soundfile.read(assets_dir() / "clips" / name, dtype="float32")
    assert rate == 16000
    return samples


@cache
def bfloat16_engine() -> ASREngine:
    return make_engine(demo_checkpoint_dir(), dtype="bfloat16", finalize_silence_pad=True)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("streaming", [True, False])
def test_clips_are_understood(name: str, streaming: bool) -> None:
    (final,) = demo_engine().transcribe_outputs([clip(name)], streaming)
    assert jiwer.wer(TEXTS[name], final.text) <= TOLERANCE
    assert final.start is not None and final.end is not None and final.confidence is not None
    assert 0 <= final.start < final.end <= final.audio_seconds
    # Nearly all of a clip is speech.
    assert final.end - final.start > 0.5 * final.audio_seconds
    assert final.confidence > 0.5
    assert_idle(demo_engine())


@pytest.mark.parametrize("streaming", [True, False])
def test_bfloat16_understands_them_alone_and_batched(streaming: bool) -> None:
    engine = bfloat16_engine()
    together = engine.transcribe([clip(name) for name in TEXTS], streaming)
    alone = [engine.transcribe(clip(name), streaming) for name in TEXTS]
    for name, *texts in zip(TEXTS, together, alone, strict=True):
        for text in texts:
            assert jiwer.wer(TEXTS[name], text) <= TOLERANCE
    assert_idle(engine)


def test_the_last_word_needs_no_silence_after_it() -> None:
    """The clip is cut where its speech ends; the silence pad gives the model room to hear the end."""
    engine = demo_engine()
    for name, text in TEXTS.items():
        samples = clip(name)
        (whole,) = engine.transcribe_outputs([samples])
        assert whole.end is not None
        final = stream(engine, every(samples[: int(whole.end * 16000) + 1600], 1600))
        assert final.text.split()[-1] == text.split()[-1]
    assert_idle(engine)
