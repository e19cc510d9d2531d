"""`audio_decode`: the bytes of an audio file in, 16 kHz mono samples out.

Input AUDIO STRING [B, 1]; outputs WAV FP32 [B, N], padded with zeros to the longest, WAV_LENS INT32 [B, 1], and
AUDIO_INFO STRING [B, 1], what is known of each file as JSON.
"""

import json
import logging
import os
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from oasr_backend.audio.files import DecodedAudio, decode_file, decode_raw
from oasr_backend.audio.limits import AudioLimits
from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.errors import AudioError, ConfigError
from oasr_backend.triton.audio_info import info_json
from oasr_backend.triton.decode_settings import load_decode_log_settings, load_decode_settings
from oasr_backend.triton.errors import Refusal, invalid_input
from oasr_backend.triton.options import parse_options
from oasr_backend.triton.orphan import end_with_server
from oasr_backend.triton.request_options import CLIP_OPTIONS, FileOptions
from oasr_backend.utils.lease import take_lease
from oasr_backend.utils.log_lines import configure_logging

log = logging.getLogger(__name__)


class AudioDecodeModel:
    """Decoding is short and uses no engine, so it runs in `execute`; several instances run side by side."""

    def initialize(self, args: dict[str, str]) -> None:
        end_with_server()
        given = json.loads(args["model_config"]).get("parameters", {})
        parameters = {name: value["string_value"] for name, value in given.items()}
        try:
            configure_logging(load_decode_log_settings(parameters, os.environ), args["model_name"])
            self._limits: AudioLimits = load_decode_settings(parameters, os.environ)
        except ConfigError as error:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {error}") from None
        self._lease = take_lease(args["model_name"])

    def finalize(self) -> None:
        if self._lease:
            self._lease.give_back()

    def execute(self, requests: list[Any]) -> list[Any]:
        return [self._respond(request) for request in requests]

    def _respond(self, request: Any) -> Any:
        """A response for every request; a file that cannot be read fails alone."""
        try:
            options = parse_options(request.parameters(), FileOptions, meant_elsewhere=CLIP_OPTIONS)
            files = pb_utils.get_input_tensor_by_name(request, "AUDIO").as_numpy().reshape(-1)
            return _response(self._decode(files, options))
        except Refusal as refusal:
            return _error(str(refusal), pb_utils.TritonError.INVALID_ARG)
        except Exception:
            log.exception("a file could not be decoded")
            return _error(
                "INTERNAL_ERROR: the file could not be decoded; the server's log says why",
                pb_utils.TritonError.INTERNAL,
            )

    def _decode(self, files: np.ndarray, options: FileOptions) -> list[DecodedAudio]:
        """Raises Refusal, which names the file where there are several."""
        decoded: list[DecodedAudio] = []
        longest = 0
        for row, data in enumerate(files):
            try:
                raw = options.raw
                if raw is None:
                    audio = decode_file(data, self._limits, options.channel)
                else:
                    audio = decode_raw(data, raw, self._limits, options.channel)
                # Every row takes the room of the longest.
                longest = max(longest, len(audio.samples))
                if len(files) * longest > self._limits.longest_seconds * SAMPLE_RATE and len(files) > 1:
                    raise AudioError(
                        f"{len(files)} files as long as this one are more than max_audio_seconds, "
                        f"{self._limits.longest_seconds:g}; send long files one a request"
                    )
            except AudioError as error:
                where = f"file {row}: " if len(files) > 1 else ""
                raise invalid_input(f"{where}{error}") from error
            decoded.append(audio)
        return decoded


def _response(decoded: list[DecodedAudio]) -> Any:
    clips = [audio.samples for audio in decoded]
    padded = np.zeros((len(clips), max(map(len, clips))), dtype=np.float32)
    for row, clip in enumerate(clips):
        padded[row, : len(clip)] = clip
    lengths = np.array([[len(clip)] for clip in clips], dtype=np.int32)
    infos = np.array([[info_json(audio).encode()] for audio in decoded], dtype=np.object_)
    tensors = (("WAV", padded), ("WAV_LENS", lengths), ("AUDIO_INFO", infos))
    return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor(name, array) for name, array in tensors])


def _error(message: str, status: int) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, status))
