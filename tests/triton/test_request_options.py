"""Options of requests: which there are, what each refuses, and that no refusal shows more than it should."""

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oasr_backend.engine import DecodingOptions
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.options import given_names, parse_options
from oasr_backend.triton.request_options import ClipOptions, RequestOptions, StreamOptions, foreign_options

KINDS: tuple[type[RequestOptions], ...] = (StreamOptions, ClipOptions)
NAMES = sorted({field.name for kind in KINDS for field in fields(kind)})
# What the engine knows and no installed model can honour.
AUTOREGRESSIVE = {"max_new_tokens", "temperature", "top_k", "top_p", "prompt", "task", "language"}


def parse(kind: type[RequestOptions], values: dict[str, Any]) -> RequestOptions:
    return parse_options(json.dumps(values), kind, foreign_options(kind))


def refused(kind: type[RequestOptions], values: dict[str, Any]) -> str:
    with pytest.raises(Refusal) as caught:
        parse(kind, values)
    assert (caught.value.status, caught.value.code) == ("INVALID_ARG", "INVALID_OPTION")
    return str(caught.value).removeprefix("INVALID_OPTION: ")


def test_every_option_of_the_engine_can_be_asked_for() -> None:
    of_engine = {field.name for field in fields(DecodingOptions)} - AUTOREGRESSIVE
    assert of_engine <= {field.name for field in fields(StreamOptions)}
    assert {field.name for field in fields(ClipOptions)} - of_engine == {"queue_priority"}


@pytest.mark.parametrize("name", ["chunk_size", "partials", "endpointing", "endpoint_silence_ms", "vad_events"])
def test_an_option_of_streams_is_refused_for_a_clip_in_words(name: str) -> None:
    assert refused(ClipOptions, {name: 1}) == f"{name} is an option of streams; leave it out, or stream the clip"


def test_an_option_of_clips_is_refused_for_a_stream_in_words() -> None:
    message = refused(StreamOptions, {"queue_priority": 1})
    assert message == "queue_priority is an option of clips, for live streams never wait; leave it out"


def test_a_second_pass_may_be_asked_for_by_either_name() -> None:
    for kind in KINDS:
        options = parse(kind, {"two_pass": "true"})
        assert DecodingOptions.coerce(options.decoding).method == "attention_rescoring"
    assert "leave one of them out" in refused(ClipOptions, {"two_pass": True, "decode_method": "ctc_greedy"})


@pytest.mark.parametrize(("value", "expected"), [(5, 5), ("-3", -3), (0, 0)])
def test_a_clip_may_say_when_it_wants_to_go(value: object, expected: int) -> None:
    options = parse(ClipOptions, {"queue_priority": value})
    assert isinstance(options, ClipOptions)
    assert options.queue_priority == expected
    assert options.decoding == {}


def test_a_priority_out_of_bounds_is_refused() -> None:
    message = refused(ClipOptions, {"queue_priority": 1001})
    assert message == "queue_priority is 1001; it must be from -1000 to 1000, lower goes first"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"chunk_size": "9" * 5000}, "option chunk_size is '9999"),
        ({"chunk_size": "--5"}, "option chunk_size is '--5'; it must be a whole number"),
        ({"chunk_size": "٣"}, "it must be a whole number"),
        ({"chunk_size": 1e3}, "option chunk_size is 1000.0; it must be a whole number"),
        ({"hotword_score": True}, "option hotword_score is True; it must be a number"),
        ({"hotword_score": "nan"}, "option hotword_score is 'nan'; it must be a number"),
        ({"hotword_score": 10**400}, "option hotword_score is 1000"),
        ({"endpoint_max_ms": "1e999"}, "option endpoint_max_ms is '1e999'; it must be a number"),
        ({"partials": "off"}, "option partials is 'off'; it must be true or false"),
        ({"hotwords": "[" * 100_000}, 'hotwords is no JSON list (nested too deeply); send ["phrase", ...]'),
        ({"hotwords": '["a\\ud83d"]'}, "it holds half of a character, send whole ones"),
        ({"hotwords": json.dumps([{"phrase": "a", "score": 10**400}])}, "the score of hotword 'a' is 1000"),
        ({"hotwords": json.dumps("x" * 10**6)}, "hotwords is 'xxx"),
        ({"hotwords": json.dumps([{"a": "x" * 10**6}])}, "a hotword is {'a': 'xxx"),
        ({"decode_method": "a\ud800"}, "it must be a text"),
        ({"x" * 10**6: 1}, "unknown option 'xxx"),
        ({"a\nb\ud800": 1}, r"unknown option 'a\nb\ud800'; valid here: decode_method"),
        ({f"option_{number}": 1 for number in range(10_000)}, "9995 more; valid here: decode_method"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_impossible_is_refused_and_never_shown_whole(values: dict[str, Any], message: str) -> None:
    refusal = refused(StreamOptions, values)
    assert message in refusal
    assert len(refusal) <= 700


@pytest.mark.parametrize("parameters", ["{", '{"a": 1', "[" * 100_000], ids=["cut", "open", "deep"])
def test_parameters_that_cannot_be_read_are_refused(parameters: str) -> None:
    for read in (lambda: parse_options(parameters, StreamOptions), lambda: given_names(parameters)):
        with pytest.raises(Refusal, match="INVALID_OPTION: the request's parameters cannot be read"):
            read()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**400), 10**400),
    st.floats(),
    st.text(max_size=300),
    st.sampled_from(["true", "0", "16", "0.5", "ctc_prefix_beam", "keep", "[]", '["a"]', "Ω" * 5000, "/etc/passwd\n"]),
)
PHRASES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner), max_leaves=8
)
VALUES = st.one_of(SCALARS, PHRASES.map(lambda value: json.dumps(value)), PHRASES)


@given(st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=80)), VALUES, max_size=5))
@example({"hotwords": '[{"phrase": "a", "score": NaN}]', "decode_method": "ctc_prefix_beam"})
@example({"n_best": 10**400})
def test_any_parameters_make_options_or_one_refusal_fit_for_users(values: dict[str, Any]) -> None:
    for kind in KINDS:
        outcome = outcome_of(kind, values)
        if isinstance(outcome, Refusal):
            message = str(outcome)
            assert (outcome.status, outcome.code) == ("INVALID_ARG", "INVALID_OPTION")
            assert re.fullmatch(r"INVALID_OPTION: \S.*", message)
            assert len(message) <= 720
            message.encode()
            assert "Traceback" not in message and "site-packages" not in message and "oasr_backend" not in message
        else:
            # What was taken is what was given, and the engine can be asked for it.
            DecodingOptions.coerce(outcome.decoding)
            assert {name for name in values if not name.startswith("triton_")} <= {field.name for field in fields(kind)}


def outcome_of(kind: type[RequestOptions], values: dict[str, Any]) -> RequestOptions | Refusal:
    try:
        return parse(kind, values)
    except Refusal as refusal:
        return refusal


def test_a_refusal_is_one_line_that_can_be_written() -> None:
    refusal = Refusal("INTERNAL", "CODE", "a\n b\tc \ud800" + "x" * 10_000)
    assert str(refusal).startswith(r"CODE: a b c \ud800xxx")
    assert len(str(refusal)) == len("CODE: ") + 700
