"""Looks at every answer that a test receives from a server, by whichever client of this process."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from unittest import mock

import tritonclient.grpc
import tritonclient.http

from tests.result_documents import check_result


class ReceivedResults:
    """Counts the RESULT documents that came, and keeps what was wrong with them.

    An error is kept and not raised: answers to pipelined requests are read by a thread of the client library.
    """

    def __init__(self) -> None:
        self.checked = 0
        self.errors: list[str] = []

    def look_at(self, answer: Any) -> None:
        documents = answer.as_numpy("RESULT")
        for text in () if documents is None else documents.reshape(-1):
            self.checked += 1
            try:
                check_result(text)
            except Exception as error:
                self.errors.append(f"{type(error).__name__}: {error} in {text!r}")

    @contextmanager
    def watching(self) -> Any:
        """Both client libraries build an `InferResult` of every answer."""
        with (
            mock.patch.object(tritonclient.grpc.InferResult, "__init__", self._looking(tritonclient.grpc.InferResult)),
            mock.patch.object(tritonclient.http.InferResult, "__init__", self._looking(tritonclient.http.InferResult)),
        ):
            yield

    def _looking(self, kind: type) -> Callable[..., None]:
        build = kind.__init__  # type: ignore[misc]

        def init(answer: Any, *arguments: Any, **named: Any) -> None:
            build(answer, *arguments, **named)
            self.look_at(answer)

        return init
