"""What every RESULT document must be, wherever a test comes upon one."""

import json
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn

from jsonschema import Draft202012Validator

from oasr_client import result_schema

# Times are rounded to milliseconds.
_TOLERANCE_S = 0.0011


@cache
def _validator() -> Draft202012Validator:
    schema = result_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check_result(text: str | bytes) -> dict[str, Any]:
    """The document, which follows the schema and agrees with itself. Raises ValidationError or AssertionError."""
    document: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    _validator().validate(document)
    segments = document["segments"]
    assert [segment["id"] for segment in segments] == list(range(len(segments))), "an id is no place"
    assert all(segment["is_final"] for segment in segments[:-1]), "an early segment is not final"
    joined = "".join(segment["text"] for segment in segments)
    assert "".join(document["text"].split()) == "".join(joined.split()), "the text is not that of the segments"
    spans = [(segment["start"], segment["end"]) for segment in segments]
    for segment in segments:
        spans += [(word["start"], word["end"]) for word in segment.get("words", ())]
    for start, end in spans:
        assert start <= end <= document["audio_seconds"] + _TOLERANCE_S, "a time lies past audio_seconds"
    for earlier, later in pairwise(segments):
        assert earlier["start"] <= later["start"], "segments are not in order"
    for ranked in (document, *segments):
        scores = [one["score"] for one in ranked.get("alternatives", ())]
        assert scores == sorted(scores, reverse=True), "the best alternative is not the first"
    return document


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")
