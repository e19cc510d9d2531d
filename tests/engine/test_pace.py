"""Streams in real time go into every step; those that run ahead take turns where steps would get long."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_backend.engine import ASREngine
from oasr_backend.engine.pace import Pace, Waiting
from tests.engine.engines import make_engine, speech

AHEAD, LIVE = Waiting(60.0, 0), Waiting(0.3, 0)


def slow(pace: Pace, ahead: int, times: int = 20) -> Pace:
    """A pace that has seen steps of twice the target."""
    for _ in range(times):
        pace.learn(ahead, 0.4)
    return pace


def test_while_steps_are_short_everybody_goes() -> None:
    pace = Pace(2.0, 0.2)
    assert pace.choose([AHEAD] * 100 + [LIVE]) == list(range(101))
    pace.learn(100, 0.19)
    assert pace.choose([AHEAD] * 100 + [LIVE]) == list(range(101))


def test_a_long_step_leaves_as_many_of_those_ahead_as_fit() -> None:
    pace = slow(Pace(2.0, 0.2), ahead=40, times=1)
    assert len(pace.choose([AHEAD] * 100)) == 20
    assert len(pace.choose([AHEAD] * 10)) == 10


def test_those_in_real_time_always_go_and_a_few_of_the_others() -> None:
    pace = slow(Pace(2.0, 0.2), ahead=40)
    streams = [LIVE, *[AHEAD] * 40, LIVE, LIVE]
    chosen = pace.choose(streams)
    assert {0, 41, 42} <= set(chosen)
    assert len(chosen) == 3 + 4


def test_short_steps_let_more_in_again() -> None:
    pace = slow(Pace(2.0, 0.2), ahead=40)
    for _ in range(20):
        pace.learn(len(pace.choose([AHEAD] * 40)), 0.1)
    assert len(pace.choose([AHEAD] * 40)) == 40


@given(st.integers(5, 60), st.integers(0, 5))
def test_those_ahead_take_turns(count: int, live: int) -> None:
    pace = slow(Pace(2.0, 0.2), ahead=100)
    streams = [AHEAD] * count + [LIVE] * live
    steps = -(-count // 4)
    for step in range(1, steps + 1):
        for index in pace.choose(streams):
            streams[index] = replace(streams[index], last_step=step)
    assert all(stream.last_step for stream in streams)


# in the engine

STREAMS = 12


@pytest.fixture
def slow_engine() -> ASREngine:
    """Its steps take twice as long as streams ahead may make them."""
    engine = make_engine(max_batch_size=STREAMS)
    forward = engine._runner.forward_chunks

    def dawdle(requests, *rest):  # type: ignore[no-untyped-def]
        time.sleep(2 * 0.25 * engine.chunk_seconds)
        return forward(requests, *rest)

    engine._runner.forward_chunks = dawdle  # type: ignore[method-assign]
    return engine


def widths(engine: ASREngine) -> Callable[[], list[list[str]]]:
    """Records who was in each forward pass."""
    steps: list[list[str]] = []
    forward = engine._runner.forward_chunks

    def recording(requests, *rest):  # type: ignore[no-untyped-def]
        steps.append([request.request_id for request in requests])
        return forward(requests, *rest)

    engine._runner.forward_chunks = recording  # type: ignore[method-assign]
    return lambda: steps


def test_a_chunk_in_real_time_goes_into_the_next_step_beside_any_number_of_streams_ahead(
    slow_engine: ASREngine,
) -> None:
    engine, steps = slow_engine, widths(slow_engine)
    ahead = [engine.add_streaming_request() for _ in range(STREAMS - 1)]
    for request_id in ahead:
        engine.feed_chunk(request_id, speech(160_000))
    live = engine.add_streaming_request()
    for _ in range(6):
        engine.feed_chunk(live, speech(10240))
        assert live in {output.request_id for output in engine.step()}
    # A step takes one stride of audio, the first window needs a little more.
    assert len(steps()) == 5
    assert all(live in step for step in steps())
    assert len(steps()[0]) == STREAMS
    assert all(len(step) <= 1 + 6 for step in steps()[1:])
    served = {request_id for step in steps()[1:] for request_id in step}
    assert served == {*ahead, live}


def test_where_all_run_ahead_all_go(slow_engine: ASREngine) -> None:
    steps = widths(slow_engine)
    for _ in range(STREAMS):
        slow_engine.feed_chunk(slow_engine.add_streaming_request(), speech(160_000))
    for _ in range(5):
        slow_engine.step()
    assert [len(step) for step in steps()] == [STREAMS] * 4


def test_who_had_to_wait_gets_the_text_of_one_who_had_not(slow_engine: ASREngine) -> None:
    expected = make_engine().transcribe(speech(80_000))
    ahead = [slow_engine.add_request(speech(80_000)) for _ in range(STREAMS - 1)]
    live = slow_engine.add_streaming_request()
    finals = {output.request_id: output.text for output in slow_engine.run()}
    assert [finals[request_id] for request_id in ahead] == [expected] * len(ahead)
    slow_engine.abort_request(live)
