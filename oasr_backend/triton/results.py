"""The RESULT of a request as JSON."""

import json
from typing import Any

from oasr_backend.engine.request import RequestOutput
from oasr_backend.engine.transcript import Segment

_DECIMALS = 3


def result_json(output: RequestOutput, is_final: bool) -> str:
    """Text, segments and times of an output; times are seconds from the start of the audio."""
    result: dict[str, Any] = {
        "text": output.text,
        "is_final": is_final,
        "segments": [_segment(index, segment) for index, segment in enumerate(output.segments)],
        "audio_seconds": round(output.audio_seconds, _DECIMALS),
    }
    if output.nbest_texts is not None:
        result["alternatives"] = [
            {"text": text, "score": round(score, 4)}
            for text, score in zip(output.nbest_texts, output.scores, strict=True)
        ]
    if is_final and output.finish_reason is not None:
        result["finish_reason"] = output.finish_reason
    if output.endpoint is not None:
        result["endpoint"] = {
            "frame": output.endpoint.frame,
            "time": round(output.endpoint.seconds, _DECIMALS),
            "reason": output.endpoint.reason,
        }
    if output.speech_events is not None:
        result["speech_events"] = [
            {"type": event.kind, "time": round(event.seconds, _DECIMALS)} for event in output.speech_events
        ]
    if output.warnings:
        result["warnings"] = list(output.warnings)
    return json.dumps(result, ensure_ascii=False)


def merged(warnings: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings of two sources, each once."""
    return tuple(dict.fromkeys((*warnings, *more)))


def _segment(index: int, segment: Segment) -> dict[str, Any]:
    result: dict[str, Any] = {
        "id": index,
        "text": segment.text,
        "start": round(segment.start, _DECIMALS),
        "end": round(segment.end, _DECIMALS),
        "is_final": segment.is_final,
        "confidence": round(segment.confidence, 4),
    }
    if segment.words is not None:
        result["words"] = [
            {
                "word": word.word,
                "start": round(word.start, _DECIMALS),
                "end": round(word.end, _DECIMALS),
                "confidence": round(word.confidence, 4),
            }
            for word in segment.words
        ]
    if segment.alternatives is not None:
        result["alternatives"] = [{"text": one.text, "score": round(one.score, 4)} for one in segment.alternatives]
    if segment.endpoint is not None:
        result["endpoint"] = segment.endpoint
    return result
