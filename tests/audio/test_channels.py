"""Several channels become one: none is lost unless one is asked for."""

import numpy as np
import pytest

from oasr_backend.audio.channels import MAX_CHANNELS, one_channel
from oasr_backend.errors import AudioError

BLOCK = np.array([[0.5, -0.25, 0.0], [1.0, 0.5, 0.0]], dtype=np.float32)


def test_channels_are_mixed_down_or_one_is_taken() -> None:
    np.testing.assert_allclose(one_channel(BLOCK, None), [0.25 / 3, 0.5])
    assert one_channel(BLOCK, None).dtype == np.float32
    assert one_channel(BLOCK, 1).tolist() == [-0.25, 0.5]
    assert one_channel(BLOCK[:, :1], None).tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("channels", "channel", "words"), [(3, 3, "3 channels, numbers 0 to 2"), (1, 1, "1 channel, number 0")]
)
def test_a_channel_that_is_not_there_is_refused(channels: int, channel: int, words: str) -> None:
    with pytest.raises(AudioError, match=f"channel is {channel} and AUDIO has {words}"):
        one_channel(BLOCK[:, :channels], channel)


def test_more_channels_than_any_recorder_has_are_refused() -> None:
    one_channel(np.zeros((1, MAX_CHANNELS), dtype=np.float32), None)
    with pytest.raises(AudioError, match=f"{MAX_CHANNELS + 1} channels"):
        one_channel(np.zeros((1, MAX_CHANNELS + 1), dtype=np.float32), None)
