"""`audio_decode`: the bytes of an audio file in, 16 kHz mono samples out.

Input AUDIO STRING [B, 1]; outputs WAV FP32 [B, N], padded with zeros to the longest, and WAV_LENS INT32 [B, 1].
"""

import json
import logging
import os
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from oasr_backend.errors import ConfigError
from oasr_backend.triton.audio_bytes import AudioLimits, decode_audio
from oasr_backend.triton.decode_settings import load_decode_log_settings, load_decode_settings
from oasr_backend.triton.errors import Refusal, invalid_input
from oasr_backend.utils.log_lines import configure_logging

log = logging.getLogger(__name__)


class AudioDecodeModel:
    """Decoding is short and uses no engine, so it runs in `execute`; several instances run side by side."""

    def initialize(self, args: dict[str, str]) -> None:
        given = json.loads(args["model_config"]).get("parameters", {})
        parameters = {name: value["string_value"] for name, value in given.items()}
        try:
            configure_logging(load_decode_log_settings(parameters, os.environ), args["model_name"])
            self._limits: AudioLimits = load_decode_settings(parameters, os.environ)
        except ConfigError as error:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {error}") from None

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._decode(request) for request in requests]

    def _decode(self, request: Any) -> Any:
        """A response for every request; a file that cannot be read fails alone."""
        try:
            files = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy().reshape(-1)
            clips = [self._decode_file(data, row, len(files)) for row, data in enumerate(files)]
        except Refusal as refusal:
            return _error(str(refusal), pb_utils.TritonError.INVALID_ARG)
        except Exception:
            log.exception("a file could not be decoded")
            return _error(
                "INTERNAL_ERROR: the file could not be decoded; the server's log says why",
                pb_utils.TritonError.INTERNAL,
            )
        padded = np.zeros((len(clips), max(map(len, clips))), dtype=np.float32)
        for row, clip in enumerate(clips):
            padded[row, : len(clip)] = clip
        lengths = np.array([[len(clip)] for clip in clips], dtype=np.int32)
        return pb_utils.InferenceResponse(
            output_tensors=[pb_utils.Tensor("WAV", padded), pb_utils.Tensor("WAV_LENS", lengths)]
        )

    def _decode_file(self, data: bytes, row: int, rows: int) -> np.ndarray:
        try:
            return decode_audio(data, self._limits)
        except ValueError as error:
            where = f"file {row}: " if rows > 1 else ""
            raise invalid_input(f"{where}{error}") from error


def _error(message: str, status: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, status))
