"""The real-time factor of an engine."""

from oasr_backend.triton.real_time_factor import RealTimeFactor


def test_it_is_audio_per_work_in_the_window() -> None:
    factor = RealTimeFactor(window_s=10)
    assert factor.update(0, 0, 0) == 0
    assert factor.update(5, 40, 2) == 20
    assert factor.update(10, 80, 4) == 20
    # What lies before the window counts no more.
    assert factor.update(20, 80 + 500, 4 + 10) == 50


def test_without_work_it_stays_as_it_was() -> None:
    factor = RealTimeFactor(window_s=10)
    factor.update(0, 0, 0)
    factor.update(1, 30, 1)
    assert [factor.update(now, 30, 1) for now in (20, 30, 40)] == [30, 30, 30]
