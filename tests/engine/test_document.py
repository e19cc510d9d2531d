"""The engine's surface as its users write it: every call and every example of the requirement."""

from collections.abc import Iterator

import numpy as np
import pytest

from oasr_backend.engine import ASREngine, DecodingOptions, EngineConfig, RequestOutput
from oasr_backend.errors import ConfigError
from tests.golden.cases import GoldenCase, wave

CHECKPOINT = str(GoldenCase("u2pp_conformer_bpe").path)
SMALL = {"ckpt_dir": CHECKPOINT, "dtype": "float32", "max_batch_size": 8, "max_blocks_per_seq": 32}
CLIPS = [wave(0), wave(1), wave(2)]


@pytest.fixture(scope="module")
def engine() -> ASREngine:
    return ASREngine(EngineConfig(**SMALL))


@pytest.fixture(scope="module")
def streamed(engine: ASREngine) -> list[str]:
    texts = engine.transcribe(CLIPS, streaming=True)
    assert isinstance(texts, list)
    assert all(texts)
    return texts


@pytest.fixture(scope="module")
def whole(engine: ASREngine) -> list[str]:
    texts = engine.transcribe_offline(CLIPS)
    assert isinstance(texts, list)
    assert all(texts)
    return texts


def test_offline_batch_transcription(whole: list[str]) -> None:
    engine = ASREngine(EngineConfig(ckpt_dir=CHECKPOINT, dtype="float32", service_mode="offline"))
    assert engine.transcribe_offline(CLIPS[1]) == whole[1]
    assert engine.transcribe_offline(CLIPS) == whole
    (out,) = engine.transcribe_outputs([CLIPS[1]], streaming=False, decoding=DecodingOptions(word_timestamps=True))
    assert out.finish_reason == "stop"
    assert out.words
    assert " ".join(word.word for word in out.words).replace(" ", "") == out.text.replace(" ", "")
    for word in out.words:
        assert 0 <= word.start < word.end <= len(CLIPS[1]) / 16000
        assert 0 < word.confidence <= 1
    assert [word.start for word in out.words] == sorted(word.start for word in out.words)
    assert out.confidence is not None
    assert len(out.timestamps) == len(out.tokens[0])


def test_streaming_of_attached_audio(engine: ASREngine, streamed: list[str]) -> None:
    assert engine.transcribe(list(CLIPS), streaming=True) == streamed
    assert engine.transcribe(CLIPS[2]) == streamed[2]


def mic_chunks(samples: np.ndarray, samples_per_chunk: int) -> Iterator[np.ndarray]:
    for start in range(0, len(samples), samples_per_chunk):
        yield samples[start : start + samples_per_chunk]


def test_streaming_chunk_by_chunk(engine: ASREngine, streamed: list[str]) -> None:
    *chunks, last_chunk = mic_chunks(CLIPS[2], 4000)
    request_id = engine.add_streaming_request()
    partials = []
    for chunk in chunks:
        engine.feed_chunk(request_id, chunk, is_last=False)
        partials += [output for output in engine.step() if output.request_id == request_id and not output.finished]
    engine.feed_chunk(request_id, last_chunk, is_last=True)
    (final,) = engine.run()
    assert final.text == streamed[2]
    assert [output.finish_reason for output in partials] == [None] * len(partials)
    assert any(output.text for output in partials)
    assert all(streamed[2].startswith(output.text) for output in partials)


def test_offline_and_streaming_on_one_engine(engine: ASREngine, streamed: list[str], whole: list[str]) -> None:
    clips = [engine.add_request(clip, streaming=False) for clip in CLIPS]
    streams = [engine.add_request(clip, streaming=True) for clip in CLIPS]
    results = {output.request_id: output.text for output in engine.run()}
    assert [results[request_id] for request_id in clips] == whole
    assert [results[request_id] for request_id in streams] == streamed


def test_the_decode_method_is_chosen_by_configuration(whole: list[str]) -> None:
    assert ASREngine(EngineConfig(**SMALL, decode_method="ctc_greedy")).transcribe_offline(CLIPS) == whole
    with pytest.raises(ConfigError, match="decode_method 'ctc_cuda' is not supported; choose one of: ctc_greedy"):
        ASREngine(EngineConfig(**SMALL, decode_method="ctc_cuda"))


def test_quick_reference(engine: ASREngine, whole: list[str]) -> None:
    request_id = engine.add_request(CLIPS[0], streaming=False, priority=0)
    live = engine.add_streaming_request()
    engine.feed_chunk(live, CLIPS[0][:4000], is_last=False)
    outputs = engine.step()
    assert [output.text for output in outputs if output.request_id == request_id] == [whole[0]]
    assert engine.run() == []
    assert engine.num_running == 1
    engine.abort_request(live)
    assert (engine.num_running, engine.num_waiting) == (0, 0)
    assert engine.sample_rate == 16000
    assert engine.vocab_size == 100


@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        (DecodingOptions(n_best=3), "n_best is 3, but this decode method gives 1"),
        (DecodingOptions(max_new_tokens=64), "max_new_tokens is 64, but no autoregressive"),
        ({"temperature": 0.5}, "temperature"),
        ({"language": "en"}, "language"),
        ({"n_best": 0}, "n_best is 0"),
        ({"word_timestamps": "yes"}, "word_timestamps is 'yes'"),
        ({"beam": 3}, "unknown decoding option beam; valid are n_best"),
        (7, "decoding is 7"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused_at_every_entry(
    engine: ASREngine, decoding: object, message: str
) -> None:
    calls = (
        lambda: engine.add_request(CLIPS[0], decoding=decoding),  # type: ignore[arg-type]
        lambda: engine.add_request(CLIPS[0], streaming=False, decoding=decoding),  # type: ignore[arg-type]
        lambda: engine.add_streaming_request(decoding=decoding),  # type: ignore[arg-type]
        lambda: engine.transcribe_outputs([CLIPS[0]], decoding=decoding),  # type: ignore[arg-type]
    )
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call()
    assert (engine.num_running, engine.num_waiting) == (0, 0)


def test_words_grow_with_a_stream_and_never_move_back(engine: ASREngine) -> None:
    request_id = engine.add_streaming_request(decoding={"word_timestamps": True})
    seen: list[RequestOutput] = []
    for chunk in mic_chunks(CLIPS[2], 3200):
        engine.feed_chunk(request_id, chunk)
        seen += engine.step()
    engine.feed_chunk(request_id, [], is_last=True)
    seen += engine.run()
    (offline,) = engine.transcribe_outputs([CLIPS[2]], decoding={"word_timestamps": True})
    assert seen[-1].words == offline.words
    for output in seen:
        assert output.words is not None
        starts = [word.start for word in output.words]
        assert starts == sorted(starts)


def test_a_long_stream_renders_each_token_once(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is settled is not made again at every step, however long the stream."""
    tokenizer = engine._outputs._tokenizer
    rendered: list[int] = []
    piece = tokenizer.piece
    monkeypatch.setattr(tokenizer, "piece", lambda token: rendered.append(token) or piece(token))
    long = np.tile(CLIPS[2], 6)
    (output,) = engine.transcribe_outputs([long])
    assert rendered == list(output.tokens[0])
    assert len(rendered) > 100
