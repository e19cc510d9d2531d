"""The server over gRPC."""

import ipaddress
from collections.abc import Mapping, Sequence

from oasr_client import wire
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.options import Parameter
from oasr_client.transport import DEFAULT_TIMEOUT_S, Array, SequenceStep


class GrpcTransport(wire.Closing):
    """Unary gRPC calls over one shared channel without message limits."""

    def __init__(self, url: str, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials = ANONYMOUS) -> None:
        import tritonclient.grpc as triton

        self.url = url
        self.timeout_s = timeout_s
        self._triton = triton
        self._headers = credentials.grpc_headers
        self._client = triton.InferenceServerClient(
            url, channel_args=channel_arguments(url), **wire.grpc_security(credentials)
        )

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
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            answer = self._client.infer(
                client_timeout=limit,
                **wire.request_arguments(self._triton, model, inputs, outputs, sequence, parameters, self._headers),
            )
        except Exception as error:
            raise wire.typed(error, self.url, limit) from error
        return wire.outputs_of(answer, outputs)

    def is_ready(self, model: str) -> bool:
        try:
            return bool(
                self._client.is_model_ready(
                    **wire.model_arguments(model), headers=self._headers, client_timeout=self.timeout_s
                )
            )
        except Exception as error:
            return wire.not_ready(wire.typed(error, self.url, self.timeout_s))

    def close(self) -> None:
        self._client.close()


def channel_arguments(url: str) -> list[tuple[str, int]]:
    """Settings of a gRPC channel to `url`: no message limits, and a server that comes back is soon found."""
    arguments = [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", -1),
        # Left alone, the channel would wait up to two minutes between its attempts to connect.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    if _is_local(url):
        # gRPC would send even loopback calls through the proxy of the environment.
        arguments.append(("grpc.enable_http_proxy", 0))
    return arguments


def _is_local(url: str) -> bool:
    host = url.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
