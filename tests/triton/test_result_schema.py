"""RESULT documents and the schema that is published of them."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError

from oasr_backend.decode.words import TimedWord
from oasr_backend.engine import RequestOutput
from oasr_backend.engine.request import SpeechBoundary
from oasr_backend.engine.transcript import Alternative, Endpoint, Segment
from oasr_backend.triton.results import result_json
from oasr_client import result_schema
from tests.result_documents import check_result

SEGMENT = Segment("a b", 0.2, 1.0, 0.5, is_final=True)
PARTIAL = RequestOutput("r", text="a b", audio_seconds=2.0, segments=(replace(SEGMENT, is_final=False),))
FINAL = RequestOutput(
    "r", text="a b", finished=True, finish_reason="stop", audio_seconds=2.0, segments=(SEGMENT,), confidence=0.5
)
# Each optional field of a document, and the output that brings it.
OPTIONAL: dict[str, tuple[RequestOutput, bool]] = {
    "finish_reason": (FINAL, True),
    "alternatives": (
        replace(FINAL, scores=(-1.0, -2.0), tokens=((1,), (2,)), nbest_texts=("a b", "a c")),
        True,
    ),
    "endpoint": (replace(PARTIAL, endpoint=Endpoint(60, 2.4, "silence")), False),
    "speech_events": (replace(PARTIAL, speech_events=(SpeechBoundary("speech_start", 0.2),)), False),
    "warnings": (replace(PARTIAL, warnings=("hotword 'x' cannot be spelt with this model's units",)), False),
}
OPTIONAL_OF_SEGMENTS: dict[str, Segment] = {
    "words": replace(SEGMENT, words=(TimedWord("a", 0.2, 0.5, 0.5), TimedWord("b", 0.5, 1.0, 0.5))),
    "alternatives": replace(SEGMENT, alternatives=(Alternative("a b", -1.0), Alternative("a c", -2.0))),
    "endpoint": replace(SEGMENT, endpoint="length"),
}
REQUIRED = {"text", "is_final", "segments", "audio_seconds"}
REQUIRED_OF_SEGMENTS = {"id", "text", "start", "end", "is_final", "confidence"}


@pytest.mark.parametrize("name", OPTIONAL)
def test_an_optional_field_is_there_when_it_applies_and_absent_when_not(name: str) -> None:
    output, is_final = OPTIONAL[name]
    document = check_result(result_json(output, is_final))
    assert set(document) == REQUIRED | {name} | ({"finish_reason"} if is_final else set())
    plain = check_result(result_json(PARTIAL, is_final=False))
    assert set(plain) == REQUIRED


@pytest.mark.parametrize("name", OPTIONAL_OF_SEGMENTS)
def test_an_optional_field_of_a_segment_is_there_when_it_applies(name: str) -> None:
    output = replace(FINAL, segments=(OPTIONAL_OF_SEGMENTS[name],))
    (segment,) = check_result(result_json(output, is_final=True))["segments"]
    assert set(segment) == REQUIRED_OF_SEGMENTS | {name}


def test_the_schema_names_every_field_and_describes_it() -> None:
    schema = result_schema()
    assert set(schema["properties"]) == REQUIRED | set(OPTIONAL)
    assert set(schema["$defs"]["segment"]["properties"]) == REQUIRED_OF_SEGMENTS | set(OPTIONAL_OF_SEGMENTS)
    assert set(schema["required"]) == REQUIRED
    assert set(schema["$defs"]["segment"]["required"]) == REQUIRED_OF_SEGMENTS
    assert all(one["description"] for one in schema["properties"].values())
    for part in objects(schema):
        assert part["additionalProperties"] is False


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every part of a schema that describes an object."""
    if isinstance(schema, list):
        return [found for one in schema for found in objects(one)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for one in schema.values() for found in objects(one)]


GOOD = json.loads(result_json(replace(FINAL, segments=tuple(OPTIONAL_OF_SEGMENTS.values())[:1]), is_final=True))


@pytest.mark.parametrize(
    "spoilt",
    [
        {"text": None},
        {"unknown": 1},
        {"audio_seconds": -1},
        {"finish_reason": "error"},
        {"is_final": False},
        {"segments": [{**GOOD["segments"][0], "confidence": 1.5}]},
        {"segments": [{**GOOD["segments"][0], "is_final": False}]},
        {"segments": [{**GOOD["segments"][0], "colour": "red"}]},
        {"segments": [{**GOOD["segments"][0], "words": [{"word": "a"}]}]},
        {"endpoint": {"frame": 3, "reason": "boredom"}},
        {"warnings": []},
    ],
    ids=str,
)
def test_a_wrong_document_is_found_out(spoilt: dict[str, Any]) -> None:
    check_result(json.dumps(GOOD))
    with pytest.raises(ValidationError):
        check_result(json.dumps({**GOOD, **spoilt}))


@pytest.mark.parametrize("missing", sorted(REQUIRED | {"finish_reason"}))
def test_a_document_that_lacks_something_is_found_out(missing: str) -> None:
    with pytest.raises(ValidationError):
        check_result(json.dumps({name: value for name, value in GOOD.items() if name != missing}))


@pytest.mark.parametrize(
    ("spoilt", "what"),
    [
        ({"segments": [{**GOOD["segments"][0], "id": 1}]}, "an id is no place"),
        ({"text": "something else"}, "not that of the segments"),
        ({"audio_seconds": 0.5}, "past audio_seconds"),
        ({"audio_seconds": float("nan")}, "no JSON"),
    ],
)
def test_a_document_that_contradicts_itself_is_found_out(spoilt: dict[str, Any], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        check_result(json.dumps({**GOOD, **spoilt}))


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=12)


@given(st.lists(st.tuples(TEXTS, st.floats(0, 1), st.floats(0, 3600)), max_size=4), st.booleans())
def test_whatever_was_recognised_makes_a_good_document(parts: list[tuple[str, float, float]], is_final: bool) -> None:
    starts = sorted(start for _, _, start in parts)
    segments = [
        Segment(text, start, start + 0.5, confidence, is_final=True)
        for (text, confidence, _), start in zip(parts, starts, strict=True)
    ]
    output = RequestOutput(
        "r",
        text=" ".join(segment.text for segment in segments),
        finish_reason="length" if is_final else None,
        audio_seconds=3601.0,
        segments=tuple(segments),
    )
    assert check_result(result_json(output, is_final))["is_final"] is is_final
