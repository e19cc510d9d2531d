"""Streams through the paged cache against WeNet's chunk-by-chunk loop."""

import numpy as np
import pytest

from tests.golden.cases import (
    CASES,
    CHUNKS,
    LEFT_CHUNKS,
    UTTERANCES,
    GoldenCase,
    assert_log_probs_equal,
    recorded_fbank,
)
from tests.streams import FeatureStream, FeatureStreams

MODES = [(chunk, left) for chunk in CHUNKS for left in LEFT_CHUNKS]
RECORDINGS = [
    (chunk, left, utterance)
    for chunk, left in MODES
    for utterance in UTTERANCES
    if f"c{chunk}_l{left}_u{utterance}_logprobs" in GoldenCase(CASES[0]).streaming
]


def assert_recorded(case: GoldenCase, stream: FeatureStream, chunk: int, left: int, utterance: int) -> None:
    name = f"c{chunk}_l{left}_u{utterance}"
    assert stream.sizes == case.streaming[f"{name}_sizes"].tolist()
    if f"{name}_logprobs" in case.streaming:
        assert_log_probs_equal(stream.log_probs, case.streaming[f"{name}_logprobs"])


@pytest.mark.parametrize("utterance", [0, 1, 2])
def test_recordings_cover_every_utterance(utterance: int) -> None:
    assert any(recorded == utterance for *_, recorded in RECORDINGS)


# Pages as large as a chunk, and at one chunk size such as every chunk straddles.
PAGED = [(*recording, 16) for recording in RECORDINGS] + [
    (*recording, 5) for recording in RECORDINGS if recording[0] == 8
]


@pytest.mark.parametrize(("chunk", "left", "utterance", "block_size"), PAGED)
def test_one_stream(streamed: GoldenCase, chunk: int, left: int, utterance: int, block_size: int) -> None:
    streams = FeatureStreams(streamed.model, chunk=chunk, left_chunks=left, streams=1, block_size_frames=block_size)
    stream = streams.open(recorded_fbank(utterance))
    streams.run([stream])
    assert_recorded(streamed, stream, chunk, left, utterance)


@pytest.mark.parametrize(("chunk", "left"), MODES)
def test_streams_of_different_offsets_in_one_forward(streamed: GoldenCase, chunk: int, left: int) -> None:
    """Two utterances join one and three steps after the first, so no two rows ever stand at the same frame."""
    streams = FeatureStreams(streamed.model, chunk=chunk, left_chunks=left, streams=3)
    joining = {0: 2, 1: 1, 3: 0}
    opened: dict[int, FeatureStream] = {}
    step = 0
    while joining or any(map(streams.has_window, opened.values())):
        if step in joining:
            utterance = joining.pop(step)
            opened[utterance] = streams.open(recorded_fbank(utterance))
        ready = [stream for stream in opened.values() if streams.has_window(stream)]
        if len(ready) > 1:
            assert len({stream.request.offset for stream in ready}) == len(ready)
        if ready:
            streams.step(ready)
        step += 1
    for utterance, stream in opened.items():
        assert_recorded(streamed, stream, chunk, left, utterance)


def test_streams_of_three_lengths_started_together(streamed: GoldenCase) -> None:
    streams = FeatureStreams(streamed.model, chunk=8, left_chunks=2, streams=3)
    opened = [streams.open(recorded_fbank(utterance)) for utterance in UTTERANCES]
    streams.run(opened)
    for utterance, stream in zip(UTTERANCES, opened, strict=True):
        assert_recorded(streamed, stream, 8, 2, utterance)


def test_a_padded_step_gives_the_same(streamed: GoldenCase) -> None:
    """Three streams in a step of width four: the fourth row is the padding lane."""
    streams = FeatureStreams(streamed.model, chunk=8, left_chunks=2, streams=5, streaming_graph_pad_batch=True)
    opened = [streams.open(recorded_fbank(utterance)) for utterance in UTTERANCES]
    streams.run(opened)
    for utterance, stream in zip(UTTERANCES, opened, strict=True):
        assert_recorded(streamed, stream, 8, 2, utterance)


def test_a_reused_slot_holds_nothing_of_its_last_user(streamed: GoldenCase) -> None:
    streams = FeatureStreams(streamed.model, chunk=8, left_chunks=2, streams=1)
    loud = streams.open(np.full((300, 80), 40.0, dtype=np.float32))
    streams.run([loud])
    slot = loud.slot
    streams.close(loud)
    stream = streams.open(recorded_fbank(1))
    assert stream.slot == slot
    streams.run([stream])
    assert_recorded(streamed, stream, 8, 2, 1)
