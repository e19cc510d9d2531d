"""Any order of calls: nothing is lost, nothing is answered twice, nobody hears another."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from oasr_backend.engine import RequestOutput
from oasr_backend.engine.engine import ASREngine
from tests.engine.engines import (
    assert_consistent,
    assert_idle,
    assert_same,
    drain,
    make_engine,
    speech,
    stream,
)

PLACES = 3
MAX_SAMPLES = 40000


@cache
def oracle() -> ASREngine:
    """An engine that serves one stream at a time."""
    return make_engine(max_batch_size=1, num_left_chunks=2)


@cache
def alone(samples: int, utterance: int, chunk_size: int | None) -> RequestOutput:
    """What a request hears when nobody else is there; offline when there is no chunk size."""
    if chunk_size is None:
        return oracle().transcribe_outputs([speech(samples, utterance)], streaming=False)[0]
    return stream(oracle(), [speech(samples, utterance)], chunk_size=chunk_size)


@dataclass
class Expected:
    utterance: int
    chunk_size: int | None
    samples: int = 0
    partials: list[RequestOutput] = field(default_factory=list)


class AnyOrder(RuleBasedStateMachine):
    """Requests that live are in `live` by id; those that must still end are in `ending`."""

    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.engine = make_engine(
            max_batch_size=PLACES, num_left_chunks=2, streaming_graph_pad_batch=True, block_size_frames=7
        )
        self.live: dict[str, Expected] = {}
        self.ending: set[str] = set()
        self.serial = 0

    def next_id(self) -> str:
        """Ids are the same in every run, so that examples are."""
        self.serial += 1
        return f"{self.serial:03}"

    def take(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            expected = self.live[output.request_id]
            if not output.finished:
                assert output.samples_done <= expected.samples
                expected.partials.append(output)
                continue
            assert output.request_id in self.ending
            assert output.finish_reason == "stop"
            assert_same(output, alone(expected.samples, expected.utterance, expected.chunk_size))
            for partial in expected.partials:
                assert output.tokens[0][: len(partial.tokens[0])] == partial.tokens[0]
            self.ending.remove(output.request_id)
            del self.live[output.request_id]

    @rule(target=streams, utterance=st.integers(0, 2), chunk_size=st.sampled_from([16, 16, 8]))
    def open(self, utterance: int, chunk_size: int) -> str:
        request_id = self.engine.add_streaming_request(self.next_id(), chunk_size=chunk_size)
        self.live[request_id] = Expected(utterance, chunk_size)
        return request_id

    @rule(request_id=streams, samples=st.sampled_from([0, 1, 400, 3200, 10240, 15000]))
    def feed(self, request_id: str, samples: int) -> None:
        expected = self.live[request_id]
        end = min(expected.samples + samples, MAX_SAMPLES)
        piece = speech(MAX_SAMPLES, expected.utterance)[expected.samples : end]
        self.engine.feed_chunk(request_id, piece)
        expected.samples = end

    @rule(request_id=streams)
    def feed_what_is_refused(self, request_id: str) -> None:
        with pytest.raises(ValueError):
            self.engine.feed_chunk(request_id, np.array([0.0, np.nan]), is_last=True)

    @rule(request_id=consumes(streams), samples=st.sampled_from([0, 700]))
    def end(self, request_id: str, samples: int) -> None:
        self.feed(request_id, 0)
        expected = self.live[request_id]
        end = min(expected.samples + samples, MAX_SAMPLES)
        piece = speech(MAX_SAMPLES, expected.utterance)[expected.samples : end]
        self.engine.feed_chunk(request_id, piece, is_last=True)
        expected.samples = end
        self.ending.add(request_id)
        with pytest.raises(RuntimeError):
            self.engine.feed_chunk(request_id, piece)

    @rule(request_id=consumes(streams))
    def abort(self, request_id: str) -> None:
        assert self.engine.abort_request(request_id)
        del self.live[request_id]
        with pytest.raises(KeyError):
            self.engine.feed_chunk(request_id, np.zeros(1, dtype=np.float32))

    @precondition(lambda self: self.ending)
    @rule(data=st.data())
    def abort_what_is_ending(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.ending)))
        assert self.engine.abort_request(request_id)
        self.ending.remove(request_id)
        del self.live[request_id]

    @rule(samples=st.sampled_from([0, 300, 9000, 20000]), utterance=st.integers(0, 2), streaming=st.booleans())
    def attach(self, samples: int, utterance: int, streaming: bool) -> None:
        request_id = self.engine.add_request(speech(samples, utterance), self.next_id(), streaming=streaming)
        self.live[request_id] = Expected(utterance, 16 if streaming else None, samples)
        self.ending.add(request_id)

    @rule(steps=st.integers(1, 4))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.take(self.engine.step())

    @rule()
    def read(self) -> None:
        gauges = self.engine.metrics_snapshot().gauges
        assert gauges["engine_running"] + gauges["engine_waiting"] == len(self.live)

    @invariant()
    def every_request_has_its_place(self) -> None:
        assert_consistent(self.engine)
        assert set(self.engine._scheduler._index) == set(self.live)
        assert self.engine.num_running <= PLACES

    def teardown(self) -> None:
        for request_id in set(self.live) - self.ending:
            assert self.engine.abort_request(request_id)
            del self.live[request_id]
        self.take(drain(self.engine))
        assert not self.live and not self.ending
        assert_idle(self.engine)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=25, stateful_step_count=30)
