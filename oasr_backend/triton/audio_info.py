"""The tensor AUDIO_INFO: what `audio_decode` tells of a file, one JSON object for each."""

import json

import numpy as np

from oasr_backend.audio.files import DecodedAudio
from oasr_backend.triton.errors import invalid_input


def info_json(audio: DecodedAudio) -> str:
    """`format`, `sample_rate` (Hz) and `channels` of the file, `seconds`, and `warnings` when there are any."""
    info = {
        "format": audio.format,
        "sample_rate": audio.sample_rate,
        "channels": audio.channels,
        "seconds": round(audio.seconds, 3),
    }
    if audio.warnings:
        info["warnings"] = list(audio.warnings)
    return json.dumps(info)


def read_warnings(infos: np.ndarray, rows: int) -> list[tuple[str, ...]]:
    """The warnings of each row of AUDIO_INFO [B, 1]. Raises Refusal for what `info_json` did not write."""
    try:
        parsed = [json.loads(info).get("warnings", []) for info in infos.reshape(-1)]
        if len(parsed) == rows and all(isinstance(text, str) for texts in parsed for text in texts):
            return [tuple(texts) for texts in parsed]
    except (ValueError, AttributeError, TypeError):
        pass
    raise invalid_input("AUDIO_INFO is not what audio_decode gives; leave it out, or pass that on, one a row")
