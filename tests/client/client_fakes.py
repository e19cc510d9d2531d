"""A stand-in for the connection, at the border that `oasr_client.transport.Transport` draws."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oasr_client.errors import OasrError
from oasr_client.transport import SequenceStep


@dataclass(frozen=True)
class Call:
    model: str
    samples: Any
    tensor: str
    outputs: tuple[str, ...]
    sequence: SequenceStep | None
    parameters: dict[str, Any]


Answer = Callable[[Call], OasrError | None]


@dataclass
class FakeTransport:
    """Records every request; the text grows by a word per request unless `answer` returns an error."""

    answer: Answer = lambda call: None
    url: str = "127.0.0.1:1"
    timeout_s: float = 1.0
    shape: tuple[int, ...] = (1,)
    calls: list[Call] = field(default_factory=list)
    closed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str],
        *,
        sequence: SequenceStep | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        ((name, array),) = inputs.items()
        assert array.ndim == 2
        assert array.shape[0] == 1
        call = Call(model, array[0], name, tuple(outputs), sequence, dict(parameters or {}))
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
        error = self.answer(call)
        if error:
            raise error
        text = "word " * number
        answers = {"TRANSCRIPTS": np.full(self.shape, text.strip().encode(), dtype=object)}
        if "RESULT" in outputs:
            answers["RESULT"] = np.array([json.dumps({"text": text.strip()}).encode()], dtype=object)
        return answers

    def is_ready(self, model: str) -> bool:
        return True

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> "FakeTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def flags(self) -> list[tuple[bool, bool]]:
        return [(call.sequence.start, call.sequence.end) for call in self.calls if call.sequence]
