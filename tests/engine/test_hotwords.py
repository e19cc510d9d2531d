"""Phrases to listen for, request by request, through every way into the engine."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from oasr_backend.engine import ASREngine, DecodingOptions, RequestOutput
from oasr_backend.engine.options import MAX_HOTWORDS, MAX_PHRASE_CHARACTERS, Hotword
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.engine.engines import assert_idle, drain, every, finals, make_engine, speech, stream
from tests.engine.test_demo import TEXTS, clip

NAME = "command.flac"
# Scored so high that it is heard where something else was said.
PHRASE, SCORE = "ENTER FOUR FIVE NINE", 3.0
BIASED = {"hotwords": [PHRASE], "hotword_score": SCORE}
UNSPELT = "你好"
WARNING = f"hotword {UNSPELT!r} cannot be spelt with this model's units"
PAUSE = np.zeros(24000, dtype=np.float32)


def beam_engine(**options: object) -> ASREngine:
    return make_engine(demo_checkpoint_dir(), decode_method="ctc_prefix_beam", finalize_silence_pad=True, **options)


@cache
def engine() -> ASREngine:
    """Shared, so it must be left idle."""
    return beam_engine()


@cache
def tiny() -> ASREngine:
    """Its units are single characters; shared, so it must be left idle."""
    return make_engine(decode_method="ctc_prefix_beam")


# ways into an engine: the outputs of several clips with their options


Work = Sequence[tuple[np.ndarray, dict[str, Any]]]


def clips(engine: ASREngine, work: Work) -> list[RequestOutput]:
    ids = [engine.add_request(samples, streaming=False, decoding=options) for samples, options in work]
    found = finals(drain(engine))
    return [found[request_id] for request_id in ids]


def bulk(engine: ASREngine, work: Work) -> list[RequestOutput]:
    admissions = engine.add_requests_batch(
        [{"audio": samples, "streaming": False, "decoding": DecodingOptions(**options)} for samples, options in work]
    )
    found = finals(engine.run())
    return [found[admission.request_id or ""] for admission in admissions]


def attached_streams(engine: ASREngine, work: Work) -> list[RequestOutput]:
    ids = [engine.add_request(samples, decoding=options) for samples, options in work]
    found = finals(drain(engine))
    return [found[request_id] for request_id in ids]


def live_streams(engine: ASREngine, work: Work) -> list[RequestOutput]:
    ids = [engine.add_streaming_request(decoding=options) for _, options in work]
    outputs: list[RequestOutput] = []
    pieces = [every(samples, 3200) for samples, _ in work]
    for turn in range(max(map(len, pieces))):
        for request_id, own in zip(ids, pieces, strict=True):
            if turn < len(own):
                engine.feed_chunk(request_id, own[turn], is_last=turn == len(own) - 1)
        outputs += engine.step()
    found = finals([*outputs, *drain(engine)])
    return [found[request_id] for request_id in ids]


def blocking_call(engine: ASREngine, work: Work) -> list[RequestOutput]:
    outputs = [engine.transcribe_outputs([samples], streaming=False, decoding=options) for samples, options in work]
    return [output for (output,) in outputs]


WAYS = (clips, bulk, attached_streams, live_streams, blocking_call)
Way = Callable[[ASREngine, Work], list[RequestOutput]]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_listens_for_them(way: Way) -> None:
    plain, biased = way(engine(), [(clip(NAME), {}), (clip(NAME), BIASED)])
    assert plain.text == TEXTS[NAME]
    assert biased.text == PHRASE
    assert_idle(engine())


@pytest.mark.parametrize("way", [clips, attached_streams])
def test_the_second_pass_listens_for_them_in_its_first(way: Way) -> None:
    """With no weight on the second."""
    method = {"decode_method": "attention_rescoring"}
    own = beam_engine(rescoring_ctc_weight=1000.0)
    plain, biased = way(own, [(clip(NAME), method), (clip(NAME), {**method, **BIASED})])
    assert (plain.text, biased.text) == (TEXTS[NAME], PHRASE)
    assert_idle(own)


def test_packed_rows_listen_for_them() -> None:
    own = beam_engine(enable_sequence_packing=True)
    plain, biased = clips(own, [(clip(NAME), {}), (clip(NAME), BIASED)])
    assert (plain.text, biased.text) == (TEXTS[NAME], PHRASE)
    assert_idle(own)


def test_a_recording_listens_for_them_in_every_window() -> None:
    own = beam_engine(long_form=True, long_form_window_seconds=4.5)
    recording = np.concatenate([clip(NAME), PAUSE, clip("digits.flac"), PAUSE, clip(NAME)])
    options = {"hotwords": [PHRASE, UNSPELT], "hotword_score": SCORE}
    plain, biased = clips(own, [(recording, {}), (recording, options)])
    assert plain.text == " ".join([TEXTS[NAME], TEXTS["digits.flac"], TEXTS[NAME]])
    assert biased.text == " ".join([PHRASE, TEXTS["digits.flac"], PHRASE])
    assert (plain.warnings, biased.warnings) == ((), (WARNING,))
    assert_idle(own)


# requests of one batch


def assert_equal_to_the_bit(own: RequestOutput, expected: RequestOutput) -> None:
    for name in ("text", "tokens", "scores", "timestamps", "confidence", "words", "nbest_texts", "warnings"):
        assert getattr(own, name) == getattr(expected, name)


@pytest.mark.parametrize("way", [clips, attached_streams, live_streams])
def test_requests_without_them_are_untouched_by_those_beside_them(way: Way) -> None:
    names = list(TEXTS)
    options = {"n_best": 5, "word_timestamps": True}
    without = way(engine(), [(clip(name), options) for name in names])
    several = [{}, BIASED, {"hotwords": ["ZERO NINE", "TWO"], "hotword_score": 9}]
    for place in range(3):
        # Whoever has hotwords, one has none.
        turned = several[place:] + several[:place]
        found = way(engine(), [(clip(name), {**options, **own}) for name, own in zip(names, turned, strict=True)])
        untouched = turned.index({})
        assert_equal_to_the_bit(found[untouched], without[untouched])
    assert_idle(engine())


@pytest.mark.parametrize("way", [clips, live_streams])
def test_requests_with_different_lists_hear_each_its_own(way: Way) -> None:
    lists = [BIASED, {"hotwords": ["ENTER FOUR NINE"], "hotword_score": 5}, {}]
    alone = [way(engine(), [(clip(NAME), own)])[0] for own in lists]
    assert len({output.text for output in alone}) == 3
    together = way(engine(), [(clip(NAME), own) for own in lists])
    for own, expected in zip(together, alone, strict=True):
        assert own.tokens == expected.tokens
        assert own.scores == pytest.approx(expected.scores, abs=1e-3)


@pytest.mark.parametrize("way", [clips, attached_streams, live_streams])
@pytest.mark.parametrize("empty", [[], (), "[]", [UNSPELT]])
def test_an_empty_list_changes_nothing(way: Way, empty: object) -> None:
    """Nor does one of which nothing can be spelt."""
    work = [(clip(name), {"n_best": 5}) for name in TEXTS]
    plain = way(engine(), work)
    found = way(engine(), [(samples, {**options, "hotwords": empty}) for samples, options in work])
    for own, expected in zip(found, plain, strict=True):
        assert own.warnings == ((WARNING,) if empty == [UNSPELT] else ())
        for name in ("text", "tokens", "scores", "timestamps", "confidence", "nbest_texts"):
            assert getattr(own, name) == getattr(expected, name)


def test_a_stream_without_them_may_be_decoded_greedily_all_the_same() -> None:
    greedy = make_engine(demo_checkpoint_dir(), finalize_silence_pad=True)
    for empty in ([], "[]"):
        (output,) = greedy.transcribe_outputs([clip(NAME)], decoding={"hotwords": empty})
        assert output.text == TEXTS[NAME]


# phrases that cannot be spelt


def test_a_phrase_that_cannot_be_spelt_is_named_in_every_output() -> None:
    options = {"hotwords": [PHRASE, UNSPELT, "ЭХО"], "hotword_score": SCORE}
    warnings = (WARNING, "hotword 'ЭХО' cannot be spelt with this model's units")
    request_id = engine().add_streaming_request(decoding=options)
    outputs = []
    for piece in every(clip(NAME), 8000):
        engine().feed_chunk(request_id, piece)
        outputs += engine().step()
    engine().feed_chunk(request_id, [], is_last=True)
    outputs += drain(engine())
    assert len(outputs) > 2
    assert {output.warnings for output in outputs} == {warnings}
    # The others count all the same.
    assert outputs[-1].text == PHRASE
    (output,) = clips(engine(), [(clip(NAME), options)])
    assert output.warnings == warnings and output.text == PHRASE


def test_a_phrase_may_be_written_in_any_case() -> None:
    for phrase in ("enter four five nine", " Enter  Four\tFIVE nine "):
        (output,) = clips(engine(), [(clip(NAME), {**BIASED, "hotwords": [phrase]})])
        assert output.text == PHRASE and output.warnings == ()


# forms


@pytest.mark.parametrize(
    "options",
    [
        {"hotwords": [PHRASE], "hotword_score": SCORE},
        {"hotwords": (PHRASE,), "hotword_score": SCORE},
        {"hotwords": [{"phrase": PHRASE, "score": SCORE}]},
        {"hotwords": [{"phrase": PHRASE}], "hotword_score": SCORE},
        {"hotwords": [{"phrase": PHRASE, "score": None}], "hotword_score": SCORE},
        {"hotwords": [Hotword(PHRASE, SCORE)]},
        {"hotwords": json.dumps([PHRASE]), "hotword_score": SCORE},
        {"hotwords": json.dumps([{"phrase": PHRASE, "score": SCORE}])},
        {"hotwords": [{"phrase": PHRASE, "score": SCORE}, {"phrase": "RUBOUT"}], "hotword_score": 0.5},
    ],
)
def test_every_form_of_a_list_means_the_same(options: dict[str, Any]) -> None:
    (output,) = clips(engine(), [(clip(NAME), options)])
    (expected,) = clips(engine(), [(clip(NAME), BIASED)])
    assert (output.text, output.tokens) == (PHRASE, expected.tokens)
    assert output.scores == pytest.approx(expected.scores)


def test_the_bonus_of_a_phrase_is_in_the_score() -> None:
    """Its length times its score, more than once where it ends with the audio."""
    (plain,) = clips(engine(), [(clip(NAME), {})])
    (one, two) = clips(
        engine(),
        [(clip(NAME), {"hotwords": ["FOUR FIVE"], "hotword_score": score}) for score in (0.5, 1.0)],
    )
    assert one.text == two.text == plain.text
    assert one.scores[0] > plain.scores[0] + 0.5
    assert two.scores[0] - plain.scores[0] == pytest.approx(2 * (one.scores[0] - plain.scores[0]), abs=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hotwords": "ENTER"}, r"hotwords is no JSON list .*; send \[\"phrase\", \.\.\.\]"),
        ({"hotwords": '"ENTER"'}, "hotwords is 'ENTER'; it must be a list of phrases"),
        ({"hotwords": '{"phrase": "ENTER"}'}, "it must be a list of phrases"),
        ({"hotwords": None}, "hotwords is None; it must be a list of phrases"),
        ({"hotwords": {"ENTER"}}, "it must be a list of phrases"),
        ({"hotwords": b"ENTER"}, "it must be a list of phrases"),
        ({"hotwords": [7]}, "a hotword is 7; it must be a text, or an object of phrase and score"),
        ({"hotwords": [None]}, "a hotword is None"),
        ({"hotwords": [["ENTER", 3]]}, "a hotword is "),
        ({"hotwords": [{"score": 3}]}, "it must be an object of phrase and score"),
        ({"hotwords": [{"phrase": "ENTER", "weight": 3}]}, "it must be an object of phrase and score"),
        ({"hotwords": [{"phrase": 7}]}, "a hotword's phrase is 7; it must be a text that is not empty"),
        ({"hotwords": [""]}, "a hotword's phrase is ''"),
        ({"hotwords": ["ENTER", " \n"]}, "it must be a text that is not empty"),
        ({"hotwords": ["x" * (MAX_PHRASE_CHARACTERS + 1)]}, "a hotword has 201 characters; 200 at most"),
        ({"hotwords": ["ENTER"] * (MAX_HOTWORDS + 1)}, "hotwords holds 501 phrases; 500 at most"),
        ({"hotwords": [{"phrase": "ENTER", "score": 0}]}, "the score of hotword 'ENTER' is 0; it must be above 0"),
        ({"hotwords": [{"phrase": "ENTER", "score": 101}]}, "the score of hotword 'ENTER' is 101"),
        ({"hotwords": [{"phrase": "ENTER", "score": "3"}]}, "the score of hotword 'ENTER' is '3'"),
        ({"hotwords": [{"phrase": "ENTER", "score": True}]}, "the score of hotword 'ENTER' is True"),
        ({"hotwords": '[{"phrase": "ENTER", "score": NaN}]'}, "the score of hotword 'ENTER' is nan"),
        ({"hotword_score": 0}, "hotword_score is 0; it must be above 0 and at most 100"),
        ({"hotword_score": -1}, "hotword_score is -1"),
        ({"hotword_score": 100.5}, r"hotword_score is 100\.5"),
        ({"hotword_score": "3"}, "hotword_score is '3'"),
        ({"hotword_score": True}, "hotword_score is True"),
        ({"hotword_score": float("nan")}, "hotword_score is nan"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_what_is_no_list_of_phrases_is_refused(streaming: bool, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny().add_request(speech(8000), streaming=streaming, decoding=options)
    (admission,) = tiny().add_requests_batch([{"audio": speech(8000), "streaming": streaming, "decoding": options}])
    assert admission.request_id is None and isinstance(admission.error, ValueError)
    assert_idle(tiny())


def test_as_many_and_as_long_as_may_be_are_taken() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    many = [letters[index % 26] + letters[index // 26] + "z" for index in range(MAX_HOTWORDS)]
    work = [(speech(8000), {"hotwords": many}), (speech(8000), {"hotwords": ["d" * MAX_PHRASE_CHARACTERS]})]
    for way in (clips, live_streams):
        assert [output.finish_reason for output in way(tiny(), work)] == ["stop", "stop"]
        assert [output.warnings for output in way(tiny(), work)] == [(), ()]
    assert_idle(tiny())


@pytest.mark.parametrize("streaming", [True, False])
def test_a_method_that_cannot_honour_them_refuses_them_and_names_one_that_can(streaming: bool) -> None:
    words = "hotwords are set, but this decode method cannot honour them; choose decode_method ctc_prefix_beam"
    greedy = make_engine()
    for own, options in ((greedy, {"hotwords": ["dv"]}), (tiny(), {"hotwords": ["dv"], "decode_method": "ctc_greedy"})):
        with pytest.raises(ValueError, match=words):
            own.add_request(speech(8000), streaming=streaming, decoding=options)
        if streaming:
            with pytest.raises(ValueError, match=words):
                own.add_streaming_request(decoding=options)
        with pytest.raises(ValueError, match=words):
            own.transcribe_outputs([speech(8000)], streaming, options)
        assert_idle(own)
    # As it says.
    options = {"hotwords": ["dv"], "decode_method": "ctc_prefix_beam"}
    (output,) = greedy.transcribe_outputs([speech(8000)], streaming, options)
    assert output.finish_reason == "stop"


def test_greedy_requests_beside_them_are_untouched() -> None:
    """Of one batch, each decoded its own way."""
    greedy = {"decode_method": "ctc_greedy"}
    (expected,) = clips(tiny(), [(speech(20000), greedy)])
    for way in (clips, live_streams):
        (alone,) = way(tiny(), [(speech(20000), greedy)])
        beside, _ = way(tiny(), [(speech(20000), greedy), (speech(20000, 1), {"hotwords": ["dv"], "hotword_score": 5})])
        assert beside.tokens == alone.tokens and beside.timestamps == alone.timestamps
    assert expected.tokens[0]
    assert_idle(tiny())


def test_a_stream_ends_the_same_however_it_is_fed() -> None:
    options = {"decoding": BIASED}
    expected = stream(engine(), [clip(NAME)], **options)
    for size in (400, 5000):
        output = stream(engine(), every(clip(NAME), size), **options)
        assert (output.text, output.tokens, output.timestamps) == (PHRASE, expected.tokens, expected.timestamps)
    assert_idle(engine())
