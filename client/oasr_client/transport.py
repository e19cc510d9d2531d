"""One way to call the server, over gRPC or HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.options import Parameter

Array = npt.NDArray[Any]
CorrelationId = int | str

DEFAULT_URLS = {"grpc": "127.0.0.1:8001", "http": "127.0.0.1:8000"}
DEFAULT_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SequenceStep:
    """The place of a request in a sequence.

    Attributes:
        id: correlation id, 1 to 2^63-1 or a non-empty string.
        start: the first request of the sequence.
        end: the last one; both may be set.
    """

    id: CorrelationId
    start: bool = False
    end: bool = False


class Transport(Protocol):
    """What the clients need of a connection; safe to share between threads.

    Every method raises an `OasrError` and nothing else when the server cannot be reached or refuses.
    """

    url: str
    timeout_s: float

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        sequence: SequenceStep | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """Sends one request and waits for its answer.

        Args:
            model: name of the model, or NAME:VERSION; without a version the server takes the highest.
            inputs: tensors by name; bytes travel as dtype object.
            outputs: names of the tensors to return; the server builds no others.
            sequence: the place in a sequence, for a sequence model.
            parameters: request parameters.
            timeout_s: seconds to wait, default the transport's own.
        """
        ...

    def is_ready(self, model: str) -> bool:
        """Whether the server calls the model ready; False too where it does not know it."""
        ...

    def close(self) -> None:
        """Closes the connection; calls in flight fail."""
        ...

    def __enter__(self) -> "Transport": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AsyncTransport(Protocol):
    """As `Transport`, for one event loop; calls may be made side by side."""

    url: str
    timeout_s: float

    async def infer(
        self,
        model: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        sequence: SequenceStep | None = None,
        parameters: Mapping[str, Parameter] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Array]:
        """As `Transport.infer`."""
        ...

    async def is_ready(self, model: str) -> bool:
        """As `Transport.is_ready`."""
        ...

    async def close(self) -> None:
        """Closes the connection; calls in flight fail."""
        ...


def connect(
    url: str | None = None,
    protocol: str = "grpc",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    credentials: Credentials = ANONYMOUS,
) -> Transport:
    """A transport to the server at `url`; the connection itself is made by the first request.

    Args:
        url: HOST:PORT, default 127.0.0.1:8001 (gRPC) or 127.0.0.1:8000 (HTTP).
        protocol: "grpc" or "http".
        timeout_s: seconds to wait for an answer.
        credentials: token and TLS.
    Raises:
        ValueError: another protocol, or a url that is not HOST:PORT.
    """
    address = _address(url, protocol)
    if protocol == "grpc":
        from oasr_client.grpc_transport import GrpcTransport

        return GrpcTransport(address, timeout_s, credentials)
    from oasr_client.http_transport import HttpTransport

    return HttpTransport(address, timeout_s, credentials)


def connect_async(
    url: str | None = None,
    protocol: str = "grpc",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    credentials: Credentials = ANONYMOUS,
) -> AsyncTransport:
    """As `connect`, for asyncio."""
    address = _address(url, protocol)
    if protocol == "grpc":
        from oasr_client.aio_transport import AsyncGrpcTransport

        return AsyncGrpcTransport(address, timeout_s, credentials)
    from oasr_client.aio_transport import AsyncHttpTransport

    return AsyncHttpTransport(address, timeout_s, credentials)


def check_url(url: str) -> str:
    """`url` without a leading grpc:// or http:// and a trailing slash.

    Raises:
        ValueError: it is not HOST:PORT.
    """
    if url.strip().startswith(("https://", "grpcs://")):
        raise ValueError(f"{url!r} asks for TLS: write HOST:PORT, and ask for TLS by --tls or Credentials(tls=True)")
    address = url.strip().removeprefix("grpc://").removeprefix("http://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{url!r} is not an address of the form HOST:PORT")
    return address


def text_of(outputs: Mapping[str, Array]) -> str:
    """The transcript in `TRANSCRIPTS`; a server that answers one element per word is understood too."""
    parts = outputs["TRANSCRIPTS"].reshape(-1)
    return " ".join(part.decode("utf-8", "replace") for part in parts)


def batch_of_one(samples: Array) -> Array:
    """Samples [N] as the [1, N] that a batching model takes."""
    return np.ascontiguousarray(samples).reshape(1, -1)


def _address(url: str | None, protocol: str) -> str:
    if protocol not in DEFAULT_URLS:
        raise ValueError(f"protocol is {protocol!r}: it must be grpc or http")
    return check_url(url or DEFAULT_URLS[protocol])
