"""What the tests of the real server share: audio, bare connections, streams, metrics, copies of the repository."""

import io
import itertools
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import soundfile
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from oasr_backend.serve import RunningServer
from oasr_backend.server.process import group_members
from oasr_backend.utils.paths import assets_dir, model_repository_dir

PROTOCOLS = ("grpc", "http")
RATE = 16000
CHUNK = 10240
"""Samples of 640 ms."""
TIMEOUT_S = 120.0
"""The longest that a request may take before a test calls it lost; the machine may be busy with others."""

SMALL_LIMIT = 4
"""Streams and clips that the small server takes."""

STREAMING = "oasr_streaming"
OFFLINE = "oasr_offline"
DECODE = "audio_decode"
TRANSCRIBE = "oasr_transcribe"

NOTHING = np.zeros(0, dtype=np.float32)

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


# audio


@cache
def references() -> dict[str, str]:
    """What is said in the bundled clips, by file name."""
    texts: dict[str, str] = json.loads((assets_dir() / "clips" / "clips.json").read_text(encoding="utf-8"))
    return texts


CLIPS = tuple(references())


def clip_path(name: str) -> Path:
    return assets_dir() / "clips" / name


@cache
def clip(name: str) -> np.ndarray:
    """[n] float32 at 16 kHz; read only."""
    samples, rate = soundfile.read(clip_path(name), dtype="float32")
    assert rate == RATE and samples.ndim == 1
    samples.setflags(write=False)
    return samples


@cache
def all_clips() -> np.ndarray:
    """Every clip, one after the other; read only."""
    samples = np.concatenate([clip(name) for name in CLIPS])
    samples.setflags(write=False)
    return samples


def noise(seconds: float, decibels: float) -> np.ndarray:
    """Gaussian noise at so many decibels to full scale."""
    wave = np.random.default_rng(0).standard_normal(round(seconds * RATE))
    return (wave * 10 ** (decibels / 20)).astype(np.float32)


def as_pcm(samples: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)


def cut(samples: np.ndarray, *sizes: int) -> list[np.ndarray]:
    """Pieces of these sizes in turn; the last one is what is left."""
    pieces, begin = [], 0
    for size in itertools.cycle(sizes):
        pieces.append(samples[begin : begin + size])
        begin += size
        if begin >= len(samples):
            break
    return pieces


def encoded(samples: np.ndarray, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """The bytes of an audio file of samples [n] or [n, channels]."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def word_distance(left: str, right: str) -> int:
    """Words to substitute, insert or delete."""
    others = right.split()
    row = list(range(len(others) + 1))
    for i, word in enumerate(left.split(), 1):
        above, row = row, [i]
        for j, other in enumerate(others, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (word != other)))
    return row[-1]


# requests


def new_id() -> int:
    return random.SystemRandom().randint(1, 2**62)


def inputs_of(samples: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
    """Samples [n] as PCM or WAV, by their dtype, and WAV_LENS where a length is given."""
    inputs = {"PCM" if samples.dtype == np.int16 else "WAV": samples.reshape(1, -1)}
    if length is not None:
        inputs["WAV_LENS"] = np.array([[length]], dtype=np.int32)
    return inputs


class Wire:
    """A bare tritonclient connection; used by one thread."""

    def __init__(self, server: RunningServer, protocol: str = "grpc"):
        self.protocol = protocol
        self.url = server.grpc_url if protocol == "grpc" else server.http_url
        self.client: Any
        if protocol == "grpc":
            self.triton: Any = triton_grpc
            unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
            self.client = triton_grpc.InferenceServerClient(server.grpc_url, channel_args=unlimited)
        else:
            self.triton = triton_http
            self.client = triton_http.InferenceServerClient(
                server.http_url, connection_timeout=TIMEOUT_S, network_timeout=TIMEOUT_S
            )

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An idle HTTP connection would keep a server from ending before its exit timeout.
        self.client.close()

    def infer(
        self,
        model: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = ("TRANSCRIPTS",),
        parameters: Mapping[str, Any] | None = None,
        **sequence: Any,
    ) -> Any:
        """The client library's own result; raises InferenceServerException. `sequence` as the library names it."""
        limit = {"client_timeout": TIMEOUT_S} if self.protocol == "grpc" else {}
        return self.client.infer(**self.request(model, inputs, outputs, parameters, **sequence), **limit)

    def request(
        self,
        model: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] | None = ("TRANSCRIPTS",),
        parameters: Mapping[str, Any] | None = None,
        **sequence: Any,
    ) -> dict[str, Any]:
        """The arguments of the client library's `infer`."""
        tensors = []
        for name, array in inputs.items():
            tensor = self.triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
            tensor.set_data_from_numpy(array)
            tensors.append(tensor)
        wanted = None if outputs is None else [self.triton.InferRequestedOutput(name) for name in outputs]
        parameters = dict(parameters) if parameters else None
        return {"model_name": model, "inputs": tensors, "outputs": wanted, "parameters": parameters, **sequence}

    def transcribe(self, samples: np.ndarray) -> str:
        """The text of a whole clip by `oasr_offline`."""
        return text_of(self.infer(OFFLINE, inputs_of(samples)))

    def transcribe_file(self, data: bytes) -> str:
        """The text of a file's bytes by `oasr_transcribe`."""
        return text_of(self.infer(TRANSCRIBE, {"AUDIO": np.array([[data]], dtype=np.object_)}))


def text_of(result: Any) -> str:
    """The one text of a result, whose shape must be [1]."""
    transcripts = result.as_numpy("TRANSCRIPTS")
    assert transcripts.shape == (1,)
    return str(transcripts[0].decode())


class Stream:
    """A sequence of `oasr_streaming` as its client drives it; START is set on the first request alone."""

    def __init__(self, wire: Wire, sequence_id: int | str | None = None, **parameters: Any):
        self.id = new_id() if sequence_id is None else sequence_id
        self._wire = wire
        self._parameters = parameters
        self._started = False

    def send(self, samples: np.ndarray, *, end: bool = False, length: int | None = None) -> str:
        """The text so far; raises InferenceServerException."""
        return text_of(self.infer(inputs_of(samples, length), end=end))

    def infer(
        self, inputs: Mapping[str, np.ndarray], *, end: bool = False, outputs: Sequence[str] | None = ("TRANSCRIPTS",)
    ) -> Any:
        start, self._started = not self._started, True
        return self._wire.infer(
            STREAMING,
            inputs,
            outputs,
            self._parameters if start else None,
            sequence_id=self.id,
            sequence_start=start,
            sequence_end=end,
        )

    def end(self) -> str:
        return self.send(NOTHING, end=True)

    def play(self, pieces: Sequence[np.ndarray]) -> list[str]:
        """Sends all pieces, END with the last; the texts of all answers."""
        last = len(pieces) - 1
        return [self.send(piece, end=number == last) for number, piece in enumerate(pieces)]


def streamed(server: RunningServer, pieces: Sequence[np.ndarray], protocol: str = "grpc", **parameters: Any) -> str:
    """The final text of a stream of its own."""
    with Wire(server, protocol) as wire:
        return Stream(wire, **parameters).play(pieces)[-1]


class Pipeline:
    """Requests over one gRPC stream: sent in order without waiting, answered in the same order."""

    def __init__(self, server: RunningServer, model: str = STREAMING):
        self._wire = Wire(server)
        self._model = model
        self._answers: queue.Queue[Any] = queue.Queue()
        self._sent = 0
        self._wire.client.start_stream(callback=lambda result, error: self._answers.put(error or result))

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wire.client.stop_stream(cancel_requests=True)
        self._wire.client.close()

    def send(
        self,
        sequence_id: int | str,
        inputs: Mapping[str, np.ndarray],
        *,
        start: bool = False,
        end: bool = False,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        request = self._wire.request(
            self._model,
            inputs,
            parameters=parameters,
            sequence_id=sequence_id,
            sequence_start=start,
            sequence_end=end,
            request_id=str(self._sent),
        )
        self._sent += 1
        self._wire.client.async_stream_infer(**request)

    def play(self, sequence_id: int | str, pieces: Sequence[np.ndarray]) -> None:
        """Sends a whole sequence."""
        for number, piece in enumerate(pieces):
            self.send(sequence_id, inputs_of(piece), start=number == 0, end=number == len(pieces) - 1)

    @property
    def unread(self) -> int:
        """Answers that have come and were not taken yet."""
        return self._answers.qsize()

    def next(self, timeout_s: float = TIMEOUT_S) -> Any:
        """The next result or exception."""
        return self._answers.get(timeout=timeout_s)

    def answers(self) -> list[Any]:
        """Results and exceptions for all that was sent, one each; nothing may come after them."""
        answers = [self.next() for _ in range(self._sent)]
        self._wire.client.stop_stream()
        assert self._answers.empty()
        return answers


def outcome_of(work: Callable[[], Any]) -> Any:
    """What `work` returns, or the server's error."""
    try:
        return work()
    except InferenceServerException as error:
        return error


def refusal(work: Callable[[], Any]) -> InferenceServerException:
    """The server's error, which must come; it is for users: one line, without traces and paths."""
    error = outcome_of(work)
    assert isinstance(error, InferenceServerException), f"answered {error!r}"
    assert_fit_for_users(error)
    return error


def assert_fit_for_users(error: InferenceServerException) -> None:
    message = error.message()
    assert "\n" not in message
    assert "Traceback" not in message
    assert not re.search(r"(?<!\w)/\w+/\w+|\.py\b", message), message


_STATUS = {"400": "INVALID_ARGUMENT", "499": "CANCELLED", "500": "INTERNAL", "503": "UNAVAILABLE"}


def status_of(error: InferenceServerException) -> str:
    """The status in gRPC's spelling, over either protocol."""
    status = (error.status() or "").removeprefix("StatusCode.")
    return _STATUS.get(status, status)


def code_of(error: InferenceServerException) -> str:
    """The machine-readable code at the front of a message, "" where there is none."""
    match = re.match(r"(?:in ensemble '[^']*', )?([A-Z][A-Z_]+): \S", error.message())
    return match[1] if match else ""


def together(work: Callable[[Item], Outcome], items: Iterable[Item], timeout_s: float = 2 * TIMEOUT_S) -> list[Outcome]:
    """Runs `work` on all items at once, a thread each; the outcomes in order."""
    rows = list(items)
    with ThreadPoolExecutor(len(rows)) as pool:
        futures = [pool.submit(work, item) for item in rows]
        deadline = time.monotonic() + timeout_s
        return [future.result(max(0.0, deadline - time.monotonic())) for future in futures]


# the server


def eventually(condition: Callable[[], bool], within_s: float = 90.0) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def metrics(server: RunningServer) -> dict[str, float]:
    """Every metric by its name with its labels in alphabetical order, as in `name{a="1",b="2"}`."""
    with urllib.request.urlopen(f"http://{server.metrics_url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    values = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if match:
            labels = ",".join(sorted(re.findall(r'\w+="[^"]*"', match[2] or "")))
            values[f"{match[1]}{{{labels}}}"] = float(match[3])
    return values


def settled(server: RunningServer) -> dict[str, float]:
    """Every metric when all that was answered before this call is counted."""
    now, values = time.time(), {}

    def told() -> bool:
        values.update(metrics(server))
        heartbeats = [value for name, value in values.items() if name.startswith("oasr_model_heartbeat")]
        return bool(heartbeats) and min(heartbeats) > now

    assert eventually(told)
    return values


def gauge(server: RunningServer, name: str, model: str = STREAMING) -> float:
    """`oasr_<name>` of a model."""
    return metrics(server)[f'oasr_{name}{{model="{model}"}}']


def counter(server: RunningServer, name: str, model: str = STREAMING) -> float:
    """`oasr_<name>_total` of a model."""
    return gauge(server, f"{name}_total", model)


def settled_counter(server: RunningServer, name: str, model: str = STREAMING) -> float:
    """`counter` when all that was answered before this call is counted."""
    return settled(server)[f'oasr_{name}_total{{model="{model}"}}']


def streams_are_back(server: RunningServer) -> bool:
    """Whether no stream is open and every slot and page is free."""
    values = metrics(server)
    zero = ("kv_blocks_used", "running", "waiting", "decode_slots_in_use")
    names = ["sequences_open", *(f"engine_{name}" for name in zero)]
    return all(values[f'oasr_{name}{{model="{STREAMING}"}}'] == 0 for name in names)


def model_process(server: RunningServer, model: str) -> int:
    """The process of a model that has one instance."""
    marked = f"/{model}/1/model.py".encode()
    (pid,) = (pid for pid in group_members(server.pid) if marked in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


def copied_repository(directory: Path, *models: str) -> Path:
    """A copy of these models of the repository, to be changed at will."""
    for model in models:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(model_repository_dir() / model, directory / model, ignore=ignored)
    return directory


def replace_once(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def oasr(*arguments: str, timeout_s: float = TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    """Runs the `oasr` command of this environment."""
    command = [sys.executable, "-m", "oasr_client.main", *arguments]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
    )
