"""Frame arithmetic of the features."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.errors import CheckpointError
from oasr_backend.features.spec import FeatureSpec
from tests.golden.rules import frame_counts


@pytest.mark.parametrize(("samples", "frames"), frame_counts())
def test_frame_counts_are_those_recorded(samples: int, frames: int) -> None:
    assert FeatureSpec().num_frames(samples) == frames


@given(st.integers(0, 5000), st.sampled_from([8000, 16000, 44100]))
def test_only_whole_frames_count(samples: int, rate: int) -> None:
    spec = FeatureSpec(sample_rate=rate)
    whole = [k for k in range(samples) if k * spec.shift_samples + spec.frame_samples <= samples]
    assert spec.num_frames(samples) == len(whole)


def test_the_default_frame_is_25_ms_every_10_ms_in_a_512_point_transform() -> None:
    spec = FeatureSpec()
    assert (spec.frame_samples, spec.shift_samples, spec.fft_size) == (400, 160, 512)


def test_a_frame_that_is_a_power_of_two_is_not_padded() -> None:
    assert FeatureSpec(frame_length_ms=32.0).fft_size == 512


@pytest.mark.parametrize("name", ["sample_rate", "num_mel_bins", "frame_length_ms", "frame_shift_ms"])
@pytest.mark.parametrize("value", [0, -1])
def test_parameters_must_be_positive(name: str, value: int) -> None:
    with pytest.raises(CheckpointError, match=name):
        FeatureSpec(**{name: value})


@pytest.mark.parametrize(
    "parameters", [{"frame_shift_ms": 0.01}, {"frame_length_ms": 0.01}, {"sample_rate": 10}], ids=str
)
def test_frames_of_no_sample_are_refused(parameters: dict[str, float]) -> None:
    with pytest.raises(CheckpointError):
        FeatureSpec(**parameters)
