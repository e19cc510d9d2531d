"""Client of the speech recognition service: streams, files, and the `oasr` command."""

from importlib.metadata import PackageNotFoundError, version

from oasr_client.aio import AsyncOfflineClient, AsyncStream, AsyncStreamingClient
from oasr_client.credentials import Credentials
from oasr_client.errors import (
    AccessDenied,
    AudioError,
    InvalidRequest,
    MissingExtra,
    ModelNotFound,
    OasrError,
    RequestCancelled,
    ResumeFailed,
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
from oasr_client.resume import Resume
from oasr_client.session import StreamResponse
from oasr_client.streaming import Stream, StreamingClient
from oasr_client.transport import connect, connect_async

try:
    __version__ = version("oasr-triton")
except PackageNotFoundError:
    __version__ = "0+unknown"

__all__ = [
    "AccessDenied",
    "AsyncOfflineClient",
    "AsyncStream",
    "AsyncStreamingClient",
    "AudioError",
    "Credentials",
    "Failure",
    "InvalidRequest",
    "MissingExtra",
    "ModelNotFound",
    "OasrError",
    "OfflineClient",
    "Playback",
    "RequestCancelled",
    "Resume",
    "ResumeFailed",
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
    "connect_async",
    "play",
    "result_schema",
]
