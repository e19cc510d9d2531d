"""How much audio may wait: the arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.triton.queue_limits import QueueLimits


def test_a_stream_may_queue_up_to_its_bound() -> None:
    limits = QueueLimits(300.0, 3600.0, 128)
    assert limits.broken_by(300.0, []) is None
    assert limits.broken_by(300.1, []) == "stream"
    assert limits.resumes_at("stream") == 150.0


def test_half_of_the_total_is_set_aside_in_equal_shares() -> None:
    limits = QueueLimits(300.0, 3600.0, 128)
    assert limits.share == 14.0625
    # Six that are far ahead fill the other half; the seventh is held back, one in real time is not.
    ahead = [300.0] * 6
    assert limits.broken_by(300.0, ahead) == "total"
    assert limits.broken_by(14.0, ahead) is None
    assert limits.resumes_at("total") == limits.share


def test_a_total_that_no_bound_of_streams_can_reach_bounds_nothing() -> None:
    limits = QueueLimits(10.0, 3600.0, 2)
    assert limits.share == 10.0
    assert limits.broken_by(10.0, [10.0]) is None


@given(
    st.floats(1, 400),
    st.floats(1, 4000),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 19), st.floats(0, 200)), max_size=60),
)
def test_what_is_taken_never_passes_a_bound_and_a_share_is_always_free(
    stream_seconds: float, total_seconds: float, streams: int, chunks: list[tuple[int, float]]
) -> None:
    limits = QueueLimits(stream_seconds, total_seconds, streams)
    queued = [0.0] * streams
    for number, seconds in chunks:
        number %= streams
        others = queued[:number] + queued[number + 1 :]
        if limits.broken_by(queued[number] + seconds, others) is None:
            queued[number] += seconds
        else:
            assert queued[number] + seconds > limits.share
        assert max(queued) <= stream_seconds
        assert sum(queued) <= total_seconds * 1.000001
