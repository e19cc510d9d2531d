"""What can go wrong between a caller and the server, as typed exceptions with one clear sentence each."""

import re
from typing import ClassVar

# An ensemble puts its own name in front of its member's message.
_ENSEMBLE = re.compile(r"^in ensemble '[^']*', ")
_CODE = re.compile(r"^([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*): +(?=\S)")
_RESTRICTED = re.compile(r"This (?:protocol|API) is restricted")
_LOST_START = "must specify the START flag"
_CHANNEL_FAULTS = (
    "failed to connect",
    "errors resolving",
    "DNS resolution failed",
    "Socket closed",
    "Connection reset",
    "Connection refused",
    "recvmsg",
    "GOAWAY",
    "tcp handshaker",
)
_HTTP_STATUS = {
    "400": "INVALID_ARGUMENT",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "NOT_FOUND",
    "409": "ALREADY_EXISTS",
    "499": "CANCELLED",
    "500": "INTERNAL",
    "501": "UNIMPLEMENTED",
    "502": "UNAVAILABLE",
    "503": "UNAVAILABLE",
    "504": "DEADLINE_EXCEEDED",
}


class OasrError(Exception):
    """Base of every error of this package; `str(error)` is one sentence fit for a user.

    Attributes:
        code: the upper-case prefix of the server's message (`INVALID_ARGUMENT`), "" where there is none.
        status: the Triton status in gRPC spelling (`INVALID_ARGUMENT`, `UNAVAILABLE`), "" for local errors.
        exit_status: that of a command that ends with it.
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str = "", status: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class AudioError(OasrError):
    """The audio cannot be read or sent: missing, empty, not audio, or with samples that are not numbers."""


class MissingExtra(OasrError):
    """A command needs a part of the distribution that is not installed."""


class UsageError(OasrError):
    """A command cannot be carried out as it is written."""

    exit_status = 2


class CheckpointRefused(OasrError):
    """A checkpoint, or a setting for it, cannot be used as it is."""

    exit_status = 2


class InvalidRequest(OasrError):
    """The server refused the request as it stands; sending it again will not help."""


class UnknownSequence(InvalidRequest):
    """The server no longer knows the stream: it was idle too long, or the server was restarted."""


class StreamEnded(InvalidRequest):
    """The server ended the stream before its END; `Stream.finish` still returns the text up to there."""


class ModelNotFound(OasrError):
    """The server is up, but the model is not loaded there."""


class AccessDenied(OasrError):
    """The server wants a token and got none, or another one; or what was asked for is closed there."""


class ServerUnavailable(OasrError):
    """The server cannot take the request now: full, starting or stopping; try again later."""


class ServerUnreachable(ServerUnavailable):
    """No connection to the server, or the connection was lost."""


class ResumeFailed(ServerUnavailable):
    """A stream was lost and could not be resumed; the chunk that raises this was not added to the stream.

    The same chunk may be sent again, which tries again to resume.
    """


class ServerTimeout(OasrError):
    """No answer within the time limit of the client; the server may still be working on the request."""


class RequestCancelled(OasrError):
    """The request was cancelled, by this client or by the server."""


class ServerError(OasrError):
    """The server failed at a request that it had accepted."""


_BY_CODE: dict[str, type[OasrError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "INVALID_ARG": InvalidRequest,
    "UNIMPLEMENTED": InvalidRequest,
    "UNSUPPORTED": InvalidRequest,
    "OUT_OF_RANGE": InvalidRequest,
    "STREAM_ENDED": StreamEnded,
    "UNKNOWN_SEQUENCE": UnknownSequence,
    # Triton's HTTP calls it a bad request.
    "STREAM_RESTARTED": RequestCancelled,
    "UNAVAILABLE": ServerUnavailable,
    "RESOURCE_EXHAUSTED": ServerUnavailable,
    "DEADLINE_EXCEEDED": ServerTimeout,
    "CANCELLED": RequestCancelled,
    "INTERNAL": ServerError,
    "PERMISSION_DENIED": AccessDenied,
    "UNAUTHENTICATED": AccessDenied,
}


def split_code(message: str) -> tuple[str, str]:
    """Splits `CODE_NAME: one sentence` into its code and its sentence; the code is "" where there is none."""
    text = _ENSEMBLE.sub("", message.strip())
    match = _CODE.match(text)
    return (match.group(1), text[match.end() :]) if match else ("", text)


def unreachable(url: str, reason: str) -> ServerUnreachable:
    """The error for a server that does not answer at `url` (HOST:PORT)."""
    return ServerUnreachable(
        f"cannot reach the server at {url} ({reason}): start it with `oasr serve`, or name another one with --server",
        status="UNAVAILABLE",
    )


def timed_out(url: str, timeout_s: float) -> ServerTimeout:
    """The error for a request without an answer within `timeout_s` seconds."""
    return ServerTimeout(
        f"the server at {url} gave no answer within {timeout_s:g} s: it is overloaded or stuck; "
        "try again later or allow more time",
        status="DEADLINE_EXCEEDED",
    )


def from_server(message: str | None, status: str | None, *, url: str, timeout_s: float) -> OasrError:
    """The typed error for the message and status of a tritonclient `InferenceServerException`.

    Args:
        message: the text of the server or of the gRPC channel.
        status: `StatusCode.NAME` (gRPC) or three digits (HTTP); None for a refusal by the client library itself.
        url: HOST:PORT, for the sentence.
        timeout_s: the limit that the request ran under, in seconds.
    """
    name = (status or "").removeprefix("StatusCode.")
    name = _HTTP_STATUS.get(name, name)
    # Triton appends the Python stack of a failed model after the first line.
    lines = (message or "").strip().splitlines()
    code, text = split_code(lines[0] if lines else "the server gave no reason")
    details = {"code": code, "status": name}
    if not name:
        return InvalidRequest(text, code=code)
    if not code:
        # Triton's gRPC calls it unavailable, but trying again is of no use.
        if _RESTRICTED.search(text):
            return AccessDenied(
                f"the server at {url} refuses the request without its token: set OASR_TOKEN, name --token-file, or "
                "pass Credentials(token=...)",
                code="",
                status="PERMISSION_DENIED",
            )
        if name == "UNAVAILABLE" and any(fault in text for fault in _CHANNEL_FAULTS):
            return unreachable(url, reason_of(text))
        if name == "DEADLINE_EXCEEDED":
            return timed_out(url, timeout_s)
        if _LOST_START in text:
            return UnknownSequence(
                "the server does not know this stream, which was idle too long or has ended: start a new one", **details
            )
        if name == "NOT_FOUND" and "unknown model" in text:
            return ModelNotFound(f"{text} on the server at {url}: check its model repository and its log", **details)
        if name.isdigit():
            return ServerError(f"{url} does not answer like a Triton server (HTTP {name}): {text}", **details)
    kind = _BY_CODE.get(code) or _BY_CODE.get(name) or ServerError
    return kind(text, **details)


def reason_of(text: str) -> str:
    """Why a connection failed, in a few words for a user, from the text of a library."""
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not signed by an authority that is trusted here; name one with --ca"
    if "ostname" in text and "erif" in text:
        return "its certificate is for another host name"
    if "WRONG_VERSION_NUMBER" in text:
        return "it does not speak TLS there"
    if "Connection refused" in text:
        return "connection refused"
    if "resolv" in text or "lookup" in text:
        return "no such host"
    if "Socket closed" in text or "reset" in text:
        return "connection closed by the other side; a server with TLS does so without --tls, --cert and --key"
    return text.rsplit("last error: ", 1)[-1]
