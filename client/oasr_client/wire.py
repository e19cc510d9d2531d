"""What the gRPC and the HTTP transport share: tensors, sequence arguments and errors of the client library."""

import errno
import ssl
from collections.abc import Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any
from urllib.parse import quote

from oasr_client import errors
from oasr_client.credentials import Credentials
from oasr_client.options import Parameter
from oasr_client.transport import Array, SequenceStep

# Of the HTTP libraries, which are not imported for their names alone.
_CONNECTION_LOST = ("HTTPConnectionClosed", "ServerDisconnectedError", "ClientPayloadError")
# Of metadata and header names, what both protocols allow.
SEQUENCE_HEADER = "oasr-sequence"
_HEADER_LENGTH = 64
CLOSED = "the connection was closed by this program"


class Closing:
    """The context manager both transports share."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def grpc_security(credentials: Credentials) -> dict[str, Any]:
    """TLS as arguments of the gRPC client libraries."""
    if not credentials.tls:
        return {}
    files = (("root_certificates", credentials.ca), ("certificate_chain", credentials.cert))
    chosen = {name: str(file) for name, file in (*files, ("private_key", credentials.key)) if file is not None}
    return {"ssl": True, **chosen}


def tls_context(credentials: Credentials, library: ModuleType = ssl) -> ssl.SSLContext | None:
    """TLS as the HTTP client libraries take it; None for a connection without it.

    `library` makes the context: `ssl`, or what stands for it in a library with sockets of its own.

    Raises:
        ValueError: a file that holds no certificate or key, or a key of another certificate.
    """
    if not credentials.tls:
        return None
    try:
        context: ssl.SSLContext = library.create_default_context(cafile=credentials.ca)
        if credentials.cert is not None:
            context.load_cert_chain(credentials.cert, credentials.key)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"the certificates cannot be used ({error})") from None
    return context


def inputs_of(triton: Any, arrays: Mapping[str, Array]) -> list[Any]:
    """Arrays by name as the `InferInput` objects of `triton`, one of the two client libraries."""
    from tritonclient.utils import np_to_triton_dtype

    tensors = []
    for name, array in arrays.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        tensors.append(tensor)
    return tensors


def outputs_of(answer: Any, names: Sequence[str]) -> dict[str, Array]:
    """The named tensors of an answer.

    Raises:
        ServerError: one of them is missing.
    """
    arrays = {name: answer.as_numpy(name) for name in names}
    missing = [name for name, array in arrays.items() if array is None]
    if missing:
        raise errors.ServerError(f"the server left {', '.join(missing)} out of its answer: it is not a model of ours")
    return arrays


def model_arguments(model: str) -> dict[str, str]:
    """`NAME` or `NAME:VERSION` as arguments of the client library's calls."""
    name, _, version = model.partition(":")
    return {"model_name": name, "model_version": version}


def request_arguments(
    triton: Any,
    model: str,
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    sequence: SequenceStep | None,
    parameters: Mapping[str, Parameter] | None,
    headers: Mapping[str, str],
) -> dict[str, Any]:
    """A request, with the `headers` of every one, as arguments of `infer` of `triton`, any of the client libraries."""
    return {
        **model_arguments(model),
        "inputs": inputs_of(triton, inputs),
        "outputs": [triton.InferRequestedOutput(name) for name in outputs],
        "headers": {**headers, **sequence_headers(sequence)},
        "parameters": dict(parameters) if parameters else None,
        **sequence_arguments(sequence),
    }


def sequence_arguments(step: SequenceStep | None) -> dict[str, Any]:
    """The place in a sequence as arguments of the client library's `infer`."""
    if step is None:
        return {}
    return {"sequence_id": step.id, "sequence_start": step.start, "sequence_end": step.end}


def sequence_headers(step: SequenceStep | None) -> dict[str, str]:
    """What a proxy in front of several servers keeps a stream on one of them by: quoted, for an id may be any text."""
    return {} if step is None else {SEQUENCE_HEADER: quote(str(step.id), safe="")[:_HEADER_LENGTH]}


def not_ready(error: errors.OasrError) -> bool:
    """False for a server that says that the model is not ready; without an answer, `error` is raised."""
    if isinstance(error, errors.ServerUnreachable | errors.ServerTimeout):
        raise error
    return False


def typed(error: Exception, url: str, timeout_s: float) -> errors.OasrError:
    """The typed error for whatever the client library raised; `timeout_s` is the limit of the request in seconds."""
    from tritonclient.utils import InferenceServerException

    if isinstance(error, errors.OasrError):
        return error
    if isinstance(error, InferenceServerException):
        return errors.from_server(error.message(), error.status(), url=url, timeout_s=timeout_s)
    if isinstance(error, TimeoutError):
        return errors.timed_out(url, timeout_s)
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return errors.unreachable(url, "connection refused")
    if isinstance(error, OSError):
        return errors.unreachable(url, errors.reason_of(error.strerror or str(error)))
    if isinstance(error, ValueError) and "closed channel" in str(error):
        return errors.RequestCancelled(CLOSED, status="CANCELLED")
    if type(error).__name__ in _CONNECTION_LOST:
        return errors.unreachable(url, "connection closed by the other side")
    return errors.ServerError(f"{url} does not answer like a Triton server of this protocol: {error}")
