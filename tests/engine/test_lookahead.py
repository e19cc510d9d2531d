"""Features of the next step, extracted while this one runs: as on a GPU."""

from collections.abc import Sequence

import numpy as np
import pytest

from oasr_backend.engine import ASREngine
from oasr_backend.engine.request import Request
from tests.engine.engines import assert_idle, drain, finals, make_engine, speech

CLIPS = [speech(length, index % 3) for index, length in enumerate((16000, 45000, 80000, 600, 52000))]


def make_ahead(ahead: bool = True, **options: object) -> ASREngine:
    engine = make_engine(max_batch_size=8, **options)
    engine._streaming._lookahead = ahead
    return engine


def texts(engine: ASREngine, piece: int) -> list[str]:
    """Every clip in a stream of its own, fed in pieces with a step between them."""
    ids = [engine.add_streaming_request() for _ in CLIPS]
    outputs = []
    for start in range(0, max(map(len, CLIPS)), piece):
        for request_id, clip in zip(ids, CLIPS, strict=True):
            if start < len(clip):
                engine.feed_chunk(request_id, clip[start : start + piece], is_last=start + piece >= len(clip))
        outputs += engine.step()
    by_id = finals(outputs + drain(engine))
    assert_idle(engine)
    return [by_id[request_id].text for request_id in ids]


@pytest.mark.parametrize("piece", [1600, 10240, 80000])
@pytest.mark.parametrize("options", [{}, {"endpointing": True}, {"finalize_silence_pad": False}], ids=str)
def test_it_changes_no_text(piece: int, options: dict[str, object]) -> None:
    assert texts(make_ahead(**options), piece) == texts(make_ahead(ahead=False, **options), piece)


def test_features_come_before_the_decoding_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_ahead()
    seen: list[str] = []
    ingest, advance = engine._inputs.ingest, engine._outputs.advance
    monkeypatch.setattr(engine._inputs, "ingest", lambda *args: (seen.append("features"), ingest(*args))[1])
    monkeypatch.setattr(engine._outputs, "advance", lambda *args: (seen.append("decode"), advance(*args))[1])
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, CLIPS[2])
    while "decode" not in seen:
        engine.step()
    assert seen[-2:] == ["features", "decode"]
    engine.abort_request(request_id)
    assert_idle(engine)


def test_what_is_taken_in_ahead_delays_no_answer() -> None:
    """Audio of the first chunk is done when its windows are, though more lies ready by then."""

    def done(ahead: bool) -> list[int]:
        engine = make_ahead(ahead)
        request_id = engine.add_streaming_request()
        for _ in range(4):
            engine.feed_chunk(request_id, CLIPS[2][:16000])
        marks = []
        while engine.has_work:
            marks += [output.samples_done for output in engine.step()]
        engine.abort_request(request_id)
        return marks

    ahead, plain = done(True), done(False)
    assert ahead[-1] == plain[-1] == 64000
    assert all(early >= late for early, late in zip(ahead, plain, strict=False))


def test_a_failure_ends_only_those_whose_features_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_ahead()
    ingest = engine._inputs.ingest
    calls: list[int] = []

    def fails_third(requests: Sequence[Request]) -> None:
        calls.append(len(requests))
        if len(calls) == 3:
            raise RuntimeError("no features")
        ingest(list(requests))

    long, short = engine.add_streaming_request(), engine.add_streaming_request()
    engine.feed_chunk(long, CLIPS[2])
    engine.feed_chunk(short, np.ascontiguousarray(CLIPS[2][:11500]))
    monkeypatch.setattr(engine._inputs, "ingest", fails_third)
    # A window is longer than what one step takes in.
    outputs = engine.step() + engine.step()
    assert calls == [2, 2, 1]
    (failed,) = [output for output in outputs if output.finished]
    assert (failed.request_id, failed.finish_reason, failed.error_stage) == (long, "error", "streaming_features")
    engine.feed_chunk(short, CLIPS[0], is_last=True)
    assert finals(drain(engine))[short].finish_reason == "stop"
    assert_idle(engine)
