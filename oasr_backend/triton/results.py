"""The RESULT of a request as JSON."""

import json
from typing import Any

from oasr_backend.engine.request import RequestOutput

_DECIMALS = 3


def result_json(output: RequestOutput, is_final: bool) -> str:
    """Text, segments and times of an output; times are seconds from the start of the audio."""
    result: dict[str, Any] = {
        "text": output.text,
        "is_final": is_final,
        "segments": [_segment(output, is_final)] if output.text else [],
        "audio_seconds": round(output.audio_seconds, _DECIMALS),
    }
    if is_final and output.finish_reason is not None:
        result["finish_reason"] = output.finish_reason
    return json.dumps(result, ensure_ascii=False)


def _segment(output: RequestOutput, is_final: bool) -> dict[str, Any]:
    segment: dict[str, Any] = {
        "id": 0,
        "text": output.text,
        "start": round(output.start or 0.0, _DECIMALS),
        "end": round(output.end or 0.0, _DECIMALS),
        "is_final": is_final,
        "confidence": round(output.confidence or 0.0, 4),
    }
    if output.words is not None:
        segment["words"] = [
            {
                "word": word.word,
                "start": round(word.start, _DECIMALS),
                "end": round(word.end, _DECIMALS),
                "confidence": round(word.confidence, 4),
            }
            for word in output.words
        ]
    return segment
