import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_fakes import FakeTransport

from oasr_client import AsyncOfflineClient, AsyncStreamingClient, OfflineClient, StreamingClient
from oasr_client.commands.transcribe import _unfinished
from oasr_client.errors import ModelNotFound, ServerUnavailable, UsageError
from oasr_client.inputs import Utterance
from oasr_client.model_version import versioned
from oasr_client.unfinished import UnfinishedRun

CLIP = np.zeros(16, dtype=np.int16)
CLIENTS: list[Callable[..., Any]] = [StreamingClient, AsyncStreamingClient, OfflineClient, AsyncOfflineClient]


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [
        ("oasr_streaming", None, "oasr_streaming"),
        ("oasr_streaming:2", None, "oasr_streaming:2"),
        ("oasr_streaming", 2, "oasr_streaming:2"),
        ("oasr_transcribe", None, "oasr_transcribe"),
        ("streaming_wenet", None, "streaming_wenet"),
    ],
)
def test_a_model_and_its_version_make_one_name(model: str, version: int | None, expected: str) -> None:
    assert versioned(model, version) == expected


@pytest.mark.parametrize(
    ("model", "version", "reason"),
    [
        ("oasr_streaming", 0, "whole numbers from 1"),
        ("oasr_streaming:1", 2, "give it once"),
        ("oasr_transcribe", 1, "highest version of oasr_offline"),
        ("streaming_wenet", 1, "highest version of oasr_streaming"),
        ("attention_rescoring:1", None, "highest version of oasr_offline"),
    ],
)
def test_a_version_that_could_not_be_kept_is_refused(model: str, version: int | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        versioned(model, version)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_refuses_it_before_it_connects(client: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="whole numbers from 1"):
        client(model_version=0)


def test_streams_and_samples_go_to_the_version(fake: FakeTransport) -> None:
    with StreamingClient(via=fake, model_version=2).stream() as stream:
        stream.send(CLIP)
    OfflineClient(via=fake, model_version=3).transcribe_samples(CLIP)
    assert [call.model for call in fake.calls] == ["oasr_streaming:2", "oasr_streaming:2", "oasr_offline:3"]


class Decoding:
    """A connection to a server that decodes files and hears samples."""

    url = "127.0.0.1:1"
    timeout_s = 1.0

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        self.failures: list[Exception] = []

    def infer(
        self,
        model: str,
        inputs: Mapping[str, Any],
        outputs: Sequence[str],
        *,
        sequence: Any = None,
        parameters: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        self.calls.append((model, dict(inputs), dict(parameters or {})))
        if self.failures:
            raise self.failures.pop(0)
        return {name: self._tensor(name) for name in outputs}

    def _tensor(self, name: str) -> Any:
        match name:
            case "WAV":
                return np.full((1, 8), 0.5, dtype=np.float32)
            case "WAV_LENS":
                return np.array([[8]], dtype=np.int32)
            case "RESULT":
                return np.array([json.dumps({"text": "WORD"}).encode()], dtype=object)
            case _:
                return np.array([[b"{}"]] if name == "AUDIO_INFO" else [b"WORD"], dtype=object)

    def is_ready(self, model: str) -> bool:
        return True

    def close(self) -> None:
        """Nothing to close."""


class AsyncDecoding:
    """The same for asyncio."""

    def __init__(self, server: Decoding) -> None:
        self._server = server

    async def infer(self, *arguments: Any, **others: Any) -> dict[str, Any]:
        return self._server.infer(*arguments, **others)


def check(server: Decoding) -> None:
    (decoder, sent, first), (model, heard, second) = server.calls[-2:]
    assert (decoder, model) == ("audio_decode", "oasr_offline:2")
    assert sent["AUDIO"].tolist() == [[b"bytes"]]
    assert list(heard) == ["WAV", "WAV_LENS", "AUDIO_INFO"]
    assert heard["WAV"].shape == (1, 8)
    assert first == second == {"encoding": "mulaw", "word_timestamps": True}


def test_a_file_is_decoded_and_then_heard_by_the_version() -> None:
    server = Decoding()
    options = {"encoding": "mulaw", "word_timestamps": True}
    told = OfflineClient(via=server, model_version=2).transcribe_file(b"bytes", options, want_result=True)  # type: ignore[arg-type]
    assert (told.text, told.result) == ("WORD", {"text": "WORD"})
    check(server)
    client = AsyncOfflineClient(via=AsyncDecoding(server), model_version=2)  # type: ignore[arg-type]
    assert asyncio.run(client.transcribe_file(b"bytes", options)).text == "WORD"
    check(server)


def test_what_the_server_cannot_take_is_sent_again_and_what_it_lacks_is_not() -> None:
    server = Decoding()
    client = OfflineClient(via=server, model_version=2, retry_seconds=60)  # type: ignore[arg-type]
    client.transcribe_file(b"bytes")
    server.calls.clear()
    full = ServerUnavailable("not now", code="SERVER_FULL", status="UNAVAILABLE")
    server.failures = [full, full]
    assert client.transcribe_file(b"bytes").text == "WORD"
    assert [model for model, *_ in server.calls] == ["audio_decode"] * 3 + ["oasr_offline:2"]
    server.failures = [ModelNotFound("no such version")]
    with pytest.raises(ModelNotFound):
        client.transcribe_file(b"bytes")


def test_a_run_is_not_continued_with_another_version(tmp_path: Path) -> None:
    def begin(version: int | None) -> UnfinishedRun:
        args = argparse.Namespace(format="json", output=tmp_path / "out.jsonl", model_version=version)
        return _unfinished(args, [Utterance("a", Path("a"))], {})

    with begin(1):
        pass
    with begin(1):
        pass
    for other in (2, None):
        with pytest.raises(UsageError, match="other options"):
            begin(other)
