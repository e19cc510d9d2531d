"""Word times against the energy of the words."""

import numpy as np
import pytest
import soundfile

from oasr_backend.engine.longform import mean_square
from oasr_backend.utils.paths import assets_dir
from tests.engine.engines import demo_engine

RATE = 16000
TOLERANCE_S = 0.15
# Where one clip has gaps between its words, in seconds.
GAPS = (0.80, 1.14)


def spread(silence_s: float) -> np.ndarray:
    """ENTER, FOUR, and FIVE ONE, with so much faint noise put between them."""
    clip, _ = soundfile.read(assets_dir() / "clips" / "command.flac", dtype="float32")
    noise = (np.random.default_rng(0).standard_normal(round(silence_s * RATE)) * 1e-4).astype(np.float32)
    first, second = (round(gap * RATE) for gap in GAPS)
    return np.concatenate([clip[:first], noise, clip[first:second], noise, clip[second:]])


def bursts(samples: np.ndarray) -> list[tuple[float, float]]:
    """Seconds in which there is energy, gaps of less than a tenth of a second not counted."""
    power = mean_square(samples, 400, 160)
    loud = np.flatnonzero(power > np.percentile(power, 98) / 1000)
    groups = np.split(loud, np.flatnonzero(np.diff(loud) > 10) + 1)
    return [(group[0] * 0.01, group[-1] * 0.01 + 0.025) for group in groups if len(group) > 3]


@pytest.mark.parametrize("silence_s", [0.3, 0.5, 0.8])
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("method", ["ctc_greedy", "ctc_prefix_beam"])
def test_words_lie_where_their_energy_is(silence_s: float, streaming: bool, method: str) -> None:
    samples = spread(silence_s)
    decoding = {"word_timestamps": True, "decode_method": method}
    (output,) = demo_engine().transcribe_outputs([samples], streaming=streaming, decoding=decoding)
    heard = bursts(samples)
    assert len(heard) == 3
    words = output.words or ()
    assert [word.word for word in words] == ["ENTER", "FOUR", "FIVE", "ONE"]
    starts = [words[0].start, words[1].start, words[2].start]
    ends = [words[0].end, words[1].end, words[3].end]
    assert starts == pytest.approx([start for start, _ in heard], abs=TOLERANCE_S)
    assert ends == pytest.approx([end for _, end in heard], abs=TOLERANCE_S)
