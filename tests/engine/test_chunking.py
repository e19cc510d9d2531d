"""How the audio is cut, and with whom it shares a batch, changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.engine import ASREngine, RequestOutput
from tests.engine.engines import (
    BATCH_NORM,
    STREAMS,
    TINY,
    assert_idle,
    assert_same,
    cut,
    demo_engine,
    drain,
    every,
    finals,
    make_engine,
    speech,
    stream,
)

PADS = pytest.mark.parametrize("pad", [False, True], ids=["pad-off", "pad-on"])


def whole(engine: ASREngine, samples: np.ndarray, **options: object) -> RequestOutput:
    """The stream fed at once."""
    return stream(engine, [samples], **options)


@PADS
@pytest.mark.parametrize("size", [7, 160, 400, 3200, 10240])
@pytest.mark.parametrize("path", [TINY, BATCH_NORM], ids=lambda path: path.name)
def test_pieces_of_any_size(path, size: int, pad: bool) -> None:
    engine = make_engine(path, finalize_silence_pad=pad)
    samples = speech(40321)[: 40321 if size > 7 else 12345]
    expected = whole(engine, samples)
    assert len(expected.tokens[0]) > 3
    assert_same(stream(engine, every(samples, size)), expected)
    assert_idle(engine)


@PADS
def test_pieces_of_one_sample(pad: bool) -> None:
    engine = make_engine(finalize_silence_pad=pad)
    samples = speech(4001)
    assert_same(stream(engine, every(samples, 1)), whole(engine, samples))


@PADS
def test_attached_audio_is_a_stream_fed_at_once(pad: bool) -> None:
    engine = make_engine(finalize_silence_pad=pad)
    samples = speech(40000)
    assert_same(engine.transcribe_outputs([samples])[0], whole(engine, samples))


@PADS
def test_where_the_last_mark_is_set_changes_nothing(pad: bool) -> None:
    """On the last samples, or on an empty piece after they have been decoded."""
    engine = make_engine(finalize_silence_pad=pad)
    samples = speech(40000)
    first = engine.add_streaming_request()
    engine.feed_chunk(first, samples, is_last=True)
    second = engine.add_streaming_request()
    engine.feed_chunk(second, samples)
    outputs = finals(drain(engine))
    assert set(outputs) == {first}
    engine.feed_chunk(second, [], is_last=True)
    assert_same(finals(drain(engine))[second], outputs[first])


@settings(max_examples=15)
@given(
    st.integers(1, 50000),
    st.lists(st.one_of(st.integers(0, 40), st.integers(0, 20000)), min_size=1, max_size=30),
    st.integers(1, 16),
    st.booleans(),
)
def test_any_cut_of_any_length_in_any_chunk_size(samples: int, sizes: list[int], chunk_size: int, pad: bool) -> None:
    engine = make_engine(finalize_silence_pad=pad)
    audio = speech(samples)
    expected = whole(engine, audio, chunk_size=chunk_size)
    assert_same(stream(engine, cut(audio, sizes), chunk_size=chunk_size), expected)
    assert_idle(engine)


@pytest.mark.parametrize("size", [320, 4000])
def test_the_demo_model_hears_the_same_however_it_is_cut(size: int) -> None:
    engine = demo_engine()
    samples = speech(47000, 1)
    expected = whole(engine, samples)
    assert len(expected.text.split()) > 3
    assert_same(stream(engine, every(samples, size)), expected)
    assert_idle(engine)


@PADS
@pytest.mark.parametrize("samples", [0, 1, 159, 399, 400, 401])
def test_very_short_streams(samples: int, pad: bool) -> None:
    engine = make_engine(finalize_silence_pad=pad)
    expected = whole(engine, speech(samples))
    assert expected.finish_reason == "stop"
    assert expected.audio_seconds == samples / 16000 and expected.samples_done == samples
    if not (pad and samples):
        assert expected.text == "" and expected.tokens == ((),) and expected.start is None
        assert expected.confidence is None and expected.timestamps == ()
    assert all(0 <= time <= expected.audio_seconds for time in expected.timestamps)
    assert_same(stream(engine, every(speech(samples), 100)), expected)
    assert_same(engine.transcribe_outputs([speech(samples)])[0], expected)
    assert_idle(engine)


@pytest.mark.parametrize("samples", [0, 1, 159, 399, 400, 401, 1359])
def test_very_short_clips(engine: ASREngine, samples: int) -> None:
    (final,) = engine.transcribe_outputs([speech(samples)], streaming=False)
    assert (final.text, final.finish_reason, final.tokens) == ("", "stop", ((),))
    assert (final.audio_seconds, final.samples_done) == (samples / 16000, samples)
    assert_idle(engine)


def test_the_pad_is_no_audio_and_helps_the_end() -> None:
    samples = speech(20100, 0)
    padded = whole(make_engine(finalize_silence_pad=True), samples)
    plain = whole(make_engine(), samples)
    assert padded.audio_seconds == plain.audio_seconds == len(samples) / 16000
    assert padded.samples_done == plain.samples_done == len(samples)
    assert padded.end is not None and padded.end <= padded.audio_seconds
    assert padded.tokens[0][:5] == plain.tokens[0][:5]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("samples", [400, 16000, 160000])
def test_the_demo_model_hears_nothing_in_silence(samples: int, streaming: bool) -> None:
    (final,) = demo_engine().transcribe_outputs([np.zeros(samples, dtype=np.float32)], streaming)
    assert (final.text, final.finish_reason, final.confidence) == ("", "stop", None)
    assert_idle(demo_engine())


CLIPS = [(0, 1), (400, 2), (9000, 0), (20121, 0), (20000, 1), (47266, 1), (75323, 2), (33333, 2)]


@pytest.mark.parametrize("path", [TINY, BATCH_NORM], ids=lambda path: path.name)
@pytest.mark.parametrize("streaming", [True, False])
def test_alone_equals_batched_for_clips_of_mixed_lengths(path, streaming: bool) -> None:
    engine = make_engine(path, max_batch_size=len(CLIPS))
    clips = [speech(samples, utterance) for samples, utterance in CLIPS]
    alone = [engine.transcribe_outputs([clip], streaming)[0] for clip in clips]
    engine.metrics_snapshot()
    together = engine.transcribe_outputs(clips, streaming)
    widths = engine.metrics_snapshot().samples[f"engine_batch_size:{'streaming' if streaming else 'offline'}"]
    assert max(widths) >= 5
    for output, expected in zip(together, alone, strict=True):
        assert_same(output, expected)
    assert_idle(engine)


@pytest.mark.parametrize("streaming", [True, False])
def test_the_demo_model_alone_and_batched(streaming: bool) -> None:
    engine = demo_engine()
    clips = [speech(samples, utterance) for samples, utterance in CLIPS]
    alone = [engine.transcribe_outputs([clip], streaming)[0] for clip in clips]
    assert len({output.text for output in alone}) > 4
    for output, expected in zip(engine.transcribe_outputs(clips, streaming), alone, strict=True):
        assert_same(output, expected)
    assert_idle(engine)


@settings(max_examples=15)
@given(st.data())
def test_streams_that_join_at_random_equal_themselves_alone(data: st.DataObject) -> None:
    """Own lengths, chunk sizes, cuts and beginnings, padded widths or exact ones."""
    pad_batch = data.draw(st.booleans(), label="padded widths")
    engine = make_engine(streaming_graph_pad_batch=pad_batch, num_left_chunks=data.draw(st.sampled_from([-1, 2])))
    plans = []
    for _ in range(data.draw(st.integers(2, 6), label="streams")):
        samples = speech(data.draw(st.integers(0, 40000)), data.draw(st.integers(0, 2)))
        chunk_size = data.draw(st.sampled_from([16, 16, 8, 5]))
        sizes = data.draw(st.lists(st.integers(1, 12000), min_size=1, max_size=4))
        pieces = cut(samples, sizes * (len(samples) // sum(sizes) + 1))
        plans.append((stream(engine, pieces, chunk_size=chunk_size), pieces, chunk_size))
    outputs: list[RequestOutput] = []
    live: dict[str, list[np.ndarray]] = {}
    expected: dict[str, RequestOutput] = {}
    while plans or live:
        if plans and len(live) < STREAMS and (not live or data.draw(st.booleans(), label="join")):
            alone, pieces, chunk_size = plans.pop()
            request_id = engine.add_streaming_request(str(len(expected)), chunk_size=chunk_size)
            live[request_id], expected[request_id] = list(pieces), alone
        for request_id in data.draw(st.lists(st.sampled_from(sorted(live)), min_size=1, unique=True), label="fed"):
            pieces = live[request_id]
            piece = pieces.pop(0) if pieces else np.zeros(0, dtype=np.float32)
            engine.feed_chunk(request_id, piece, is_last=not pieces)
            if not pieces:
                del live[request_id]
        outputs += engine.step()
    together = finals([*outputs, *drain(engine)])
    assert set(together) == set(expected)
    for request_id, alone in expected.items():
        assert_same(together[request_id], alone)
    assert_idle(engine)


def test_padded_widths_change_nothing() -> None:
    """Three and five streams run at widths four and seven."""
    exact, padded = make_engine(max_batch_size=7), make_engine(max_batch_size=7, streaming_graph_pad_batch=True)
    for count in (1, 3, 5, 7):
        clips = [speech(20000 + 3000 * index, index % 3) for index in range(count)]
        for output, expected in zip(padded.transcribe_outputs(clips), exact.transcribe_outputs(clips), strict=True):
            assert_same(output, expected)
    assert_idle(padded)


def test_streams_of_several_chunk_sizes_in_one_engine(engine: ASREngine) -> None:
    samples = speech(48000)
    sizes = [4, 8, 16, 13]
    alone = [stream(engine, every(samples, 3200), chunk_size=size) for size in sizes]
    assert len({output.tokens for output in alone}) > 1
    ids = [engine.add_streaming_request(chunk_size=size) for size in sizes]
    outputs = []
    for piece in every(samples, 3200):
        for request_id in ids:
            engine.feed_chunk(request_id, piece)
        outputs += engine.step()
    for request_id in ids:
        engine.feed_chunk(request_id, [], is_last=True)
    together = finals([*outputs, *drain(engine)])
    for request_id, expected in zip(ids, alone, strict=True):
        assert_same(together[request_id], expected)


@pytest.mark.parametrize("size", [3200, 5000, 10240])
@pytest.mark.parametrize("samples", [20480, 30720, 33333, 40960])
def test_the_final_text_comes_with_the_last_window(samples: int, size: int) -> None:
    """Beside others a step takes as long for a stream that only ends in it as for one that moves on."""
    engine = make_engine(finalize_silence_pad=True)
    request = engine.add_streaming_request()
    pieces = every(speech(samples), size)
    for piece in pieces[:-1]:
        engine.feed_chunk(request, piece)
        drain(engine)
    engine.metrics_snapshot()
    engine.feed_chunk(request, pieces[-1], is_last=True)
    steps = 0
    while engine.has_work:
        outputs = engine.step()
        steps += 1
    assert [output.finished for output in outputs] == [True]
    assert steps == len(engine.metrics_snapshot().samples["engine_step_seconds:streaming"])
