"""The server over gRPC or HTTP, for asyncio."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from oasr_client import errors, wire
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.grpc_transport import channel_arguments
from oasr_client.options import Parameter
from oasr_client.transport import DEFAULT_TIMEOUT_S, Array, SequenceStep

Answer = TypeVar("Answer")

_LIBRARY_TIMEOUT_S = 86_400.0


class _AsyncTransport:
    """What both share; the connection is made in the event loop of the first call."""

    def __init__(self, url: str, timeout_s: float, triton: ModuleType, headers: Mapping[str, str]) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._headers = headers
        self._triton = triton
        self._connection: Any = None
        self._closed = False

    def _connect(self) -> Any:
        raise NotImplementedError

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
        def call(client: Any) -> Any:
            return client.infer(
                **wire.request_arguments(self._triton, model, inputs, outputs, sequence, parameters, self._headers)
            )

        return wire.outputs_of(await self._call(call, self.timeout_s if timeout_s is None else timeout_s), outputs)

    async def is_ready(self, model: str) -> bool:
        try:
            return bool(
                await self._call(
                    lambda client: client.is_model_ready(**wire.model_arguments(model), headers=self._headers),
                    self.timeout_s,
                )
            )
        except errors.OasrError as error:
            return wire.not_ready(error)

    async def close(self) -> None:
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _call(self, call: Callable[[Any], Awaitable[Answer]], limit_s: float) -> Answer:
        if self._closed:
            raise errors.RequestCancelled(wire.CLOSED, status="CANCELLED")
        try:
            if self._connection is None:
                self._connection = self._connect()
            return await asyncio.wait_for(call(self._connection), limit_s)
        except asyncio.TimeoutError as error:
            raise errors.timed_out(self.url, limit_s) from error
        except Exception as error:
            raise wire.typed(error, self.url, limit_s) from error


class AsyncGrpcTransport(_AsyncTransport):
    """Unary gRPC calls over one channel without message limits."""

    def __init__(self, url: str, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials = ANONYMOUS) -> None:
        import tritonclient.grpc.aio as triton

        super().__init__(url, timeout_s, triton, credentials.grpc_headers)
        self._security = wire.grpc_security(credentials)

    def _connect(self) -> Any:
        return self._triton.InferenceServerClient(self.url, channel_args=channel_arguments(self.url), **self._security)


class AsyncHttpTransport(_AsyncTransport):
    """HTTP calls over as many connections as there are calls at a time."""

    def __init__(self, url: str, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials = ANONYMOUS) -> None:
        import tritonclient.http.aio as triton

        super().__init__(url, timeout_s, triton, credentials.http_headers)
        self._tls = wire.tls_context(credentials)

    def _connect(self) -> Any:
        # `_call` keeps the limit of each request; 0 connections means any number.
        return self._triton.InferenceServerClient(
            self.url,
            conn_limit=0,
            conn_timeout=_LIBRARY_TIMEOUT_S,
            ssl=self._tls is not None,
            ssl_context=self._tls,
        )
