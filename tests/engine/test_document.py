"""The engine's surface as its users write it: every call and every example of the requirement."""

from collections.abc import Iterator

import numpy as np
import pytest

from oasr_backend.engine import ASREngine, DecodingOptions, EngineConfig, RequestOutput
from oasr_backend.errors import ConfigError
from tests.golden.cases import GoldenCase, wave

CHECKPOINT = str(GoldenCase("u2pp_conformer_bpe").path)
SMALL = {"ckpt_dir": CHECKPOINT, "dtype": "float32", "max_batch_size": 8, "max_blocks_per_seq": 32, "gc_freeze": False}
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
    methods = "attention_rescoring, ctc_greedy, ctc_prefix_beam"
    with pytest.raises(ConfigError, match=f"decode_method 'ctc_cuda' is not supported; choose one of: {methods}$"):
        ASREngine(EngineConfig(**SMALL, decode_method="ctc_cuda"))


BEAM = {"beam_size": 10, "blank_threshold": 0.95}


@pytest.fixture(scope="module")
def beam() -> ASREngine:
    return ASREngine(EngineConfig(**SMALL, decoder_type="ctc_cuda", ctc_decoder_config=BEAM))


@pytest.mark.parametrize("streaming", [False, True], ids=["clip", "stream"])
def test_options_of_the_ctc_decoder_choose_the_beam_search(beam: ASREngine, streaming: bool) -> None:
    assert beam.config.decode_method == "ctc_prefix_beam"
    texts = beam.transcribe(CLIPS, streaming=streaming)
    assert all(texts)
    same = ASREngine(EngineConfig(**SMALL, decode_method="ctc_prefix_beam", decode_options=BEAM))
    assert same.transcribe(CLIPS, streaming=streaming) == texts
    outputs = beam.transcribe_outputs(CLIPS, streaming=streaming, decoding=DecodingOptions(n_best=10))
    for output, text in zip(outputs, texts, strict=True):
        assert output.text == text
        assert output.nbest_texts is not None and output.nbest_texts[0] == text
        assert len(output.nbest_texts) == len(output.tokens) == len(output.scores) == 10
        assert len(set(output.tokens)) == 10
        assert list(output.scores) == sorted(output.scores, reverse=True)
        (segment,) = output.segments
        assert segment.alternatives is not None
        assert tuple(one.text for one in segment.alternatives) == output.nbest_texts
        assert tuple(one.score for one in segment.alternatives) == output.scores
    few = beam.transcribe_outputs(CLIPS, streaming=streaming, decoding=DecodingOptions(n_best=3))
    assert [output.nbest_texts for output in few] == [(output.nbest_texts or ())[:3] for output in outputs]
    with pytest.raises(ValueError, match="n_best is 11, but this decode method gives 10; ask for no more"):
        beam.transcribe_outputs(CLIPS, streaming=streaming, decoding=DecodingOptions(n_best=11))


def test_an_option_that_the_ctc_decoder_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigError, match="beams; ctc_prefix_beam knows beam_size, token_top_k, blank_threshold"):
        ASREngine(EngineConfig(**SMALL, decoder_type="ctc_cuda", ctc_decoder_config={"beams": 10}))


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
        ({"decode_method": "ctc_cuda"}, "decode_method 'ctc_cuda' is not supported; choose one of: "),
        ({"decode_method": "ctc_prefix_beam", "n_best": 11}, "n_best is 11, but this decode method gives 10"),
        ({"hotwords": ["word"]}, "hotwords are set, but this decode method cannot honour them"),
        (DecodingOptions(max_new_tokens=64), "max_new_tokens is 64, but no autoregressive"),
        ({"temperature": 0.5}, "temperature"),
        ({"language": "en"}, "language"),
        ({"n_best": 0}, "n_best is 0"),
        ({"word_timestamps": "yes"}, "word_timestamps is 'yes'"),
        ({"beam": 3}, "unknown decoding option beam; valid are decode_method, two_pass, n_best, word_timestamps"),
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
