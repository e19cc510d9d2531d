"""The server over HTTP."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oasr_client import errors, wire
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.options import Parameter
from oasr_client.transport import DEFAULT_TIMEOUT_S, Array, SequenceStep

_LIBRARY_TIMEOUT_S = 86_400.0


class HttpTransport(wire.Closing):
    """HTTP calls, one connection per calling thread: the client library's object must not be shared."""

    def __init__(self, url: str, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials = ANONYMOUS) -> None:
        import gevent  # type: ignore[import-untyped]
        import gevent.ssl  # type: ignore[import-untyped]
        import tritonclient.http as triton

        self.url = url
        self.timeout_s = timeout_s
        self._headers = credentials.http_headers
        self._tls = wire.tls_context(credentials, gevent.ssl)
        self._triton = triton
        self._timeout = gevent.Timeout
        self._local = threading.local()
        self._closed = False

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
        def call(client: Any) -> Any:
            return client.infer(
                **wire.request_arguments(self._triton, model, inputs, outputs, sequence, parameters, self._headers)
            )

        return wire.outputs_of(self._call(call, self.timeout_s if timeout_s is None else timeout_s), outputs)

    def is_ready(self, model: str) -> bool:
        try:
            return bool(
                self._call(
                    lambda client: client.is_model_ready(**wire.model_arguments(model), headers=self._headers),
                    self.timeout_s,
                )
            )
        except errors.OasrError as error:
            return wire.not_ready(error)

    def close(self) -> None:
        self._closed = True
        self._drop_client()

    def _call(self, call: Callable[[Any], Any], limit_s: float) -> Any:
        try:
            # gevent's Timeout is no Exception, so that the client library cannot take it for a reason to send again.
            with self._timeout(limit_s):
                return call(self._client())
        except self._timeout as error:
            self._drop_client()
            raise errors.timed_out(self.url, limit_s) from error
        except Exception as error:
            raise wire.typed(error, self.url, limit_s) from error

    def _client(self) -> Any:
        if self._closed:
            raise errors.RequestCancelled(wire.CLOSED, status="CANCELLED")
        client = getattr(self._local, "client", None)
        if client is None:
            # `_call` keeps the limit of each request, so the library's own, for one read, must not be shorter.
            client = self._triton.InferenceServerClient(
                self.url,
                connection_timeout=_LIBRARY_TIMEOUT_S,
                network_timeout=_LIBRARY_TIMEOUT_S,
                ssl=self._tls is not None,
                ssl_context_factory=lambda: self._tls,
            )
            self._local.client = client
        return client

    def _drop_client(self) -> None:
        client = getattr(self._local, "client", None)
        if client is not None:
            self._local.client = None
            client.close()
