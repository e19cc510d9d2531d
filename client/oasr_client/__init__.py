"""Client of the speech recognition service: streams, files, and the `oasr` command."""

from importlib.metadata import PackageNotFoundError, version

from oasr_client.errors import (
    AudioError,
    InvalidRequest,
    MissingExtra,
    ModelNotFound,
    OasrError,
    RequestCancelled,
    ServerError,
    ServerTimeout,
    ServerUnavailable,
    ServerUnreachable,
    StreamEnded,
    UnknownSequence,
)
from oasr_client.offline import Failure, OfflineClient, Transcription
from oasr_client.playback import Playback, play
from oasr_client.result_schema import result_schema
from oasr_client.streaming import Stream, StreamingClient, StreamResponse
from oasr_client.transport import connect

try:
    __version__ = version("oasr-triton")
except PackageNotFoundError:
    __version__ = "0+unknown"

__all__ = [
    "AudioError",
    "Failure",
    "InvalidRequest",
    "MissingExtra",
    "ModelNotFound",
    "OasrError",
    "OfflineClient",
    "Playback",
    "RequestCancelled",
    "ServerError",
    "ServerTimeout",
    "ServerUnavailable",
    "ServerUnreachable",
    "Stream",
    "StreamEnded",
    "StreamResponse",
    "StreamingClient",
    "Transcription",
    "UnknownSequence",
    "__version__",
    "connect",
    "play",
    "result_schema",
]
