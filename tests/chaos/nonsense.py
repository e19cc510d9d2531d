"""Requests of any kind, sound and unsound, as they go over the wire, past what the client libraries would refuse."""

import http.client
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2, service_pb2_grpc

from oasr_backend.serve import RunningServer
from tests.server.support import DECODE, OFFLINE, STREAMING, TRANSCRIBE

ANSWERED_WITHIN_S = 30.0
_MODELS = (STREAMING, OFFLINE, DECODE, TRANSCRIBE)
_TYPES = ("FP32", "INT16", "UINT8", "INT32", "BYTES", "FP64", "BOOL", "", "FP31")
_WIDTHS = {"FP32": 4, "INT16": 2, "UINT8": 1, "INT32": 4, "FP64": 8, "BOOL": 1}
_OPTIONS = (
    "n_best",
    "hotwords",
    "hotword_score",
    "word_timestamps",
    "decode_method",
    "endpointing",
    "endpoint_silence_ms",
    "chunk_size",
    "num_left_chunks",
    "sample_rate",
    "encoding",
    "channel",
    "channels",
    "queue_priority",
    "trace",
    "no_such_option",
    "sequence_id",
    "",
)


@dataclass(frozen=True)
class Tensor:
    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class Request:
    """One request; `head` is added to the length of the JSON that HTTP is told."""

    model: str
    version: str
    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    sequence: dict[str, Any]
    head: int = 0


@dataclass(frozen=True)
class Answer:
    """What came back: the status as the protocol names it, and the words of an error."""

    status: str
    message: str

    @property
    def is_error(self) -> bool:
        return self.status not in ("OK", "200")


# samples


def _floats(values: Sequence[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _text(data: bytes) -> bytes:
    """An element of type BYTES."""
    return struct.pack("<I", len(data)) + data


_sound = st.lists(st.floats(-1, 1, width=32), max_size=200).map(_floats)
_unsound = st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0]), max_size=200).map(
    _floats
)


@st.composite
def _good_tensors(draw: st.DrawFn, model: str) -> tuple[Tensor, ...]:
    """What the model asks for."""
    if model in (DECODE, TRANSCRIBE):
        return (Tensor("AUDIO", "BYTES", (1, 1), _text(draw(st.binary(max_size=400)))),)
    kind = draw(st.sampled_from(["WAV", "PCM", "BYTES"] if model == STREAMING else ["WAV", "PCM"]))
    if kind == "WAV":
        data = draw(_sound | _unsound)
        return (Tensor("WAV", "FP32", (1, len(data) // 4), data),)
    if kind == "PCM":
        data = draw(st.binary(max_size=400).map(lambda one: one[: len(one) // 2 * 2]))
        return (Tensor("PCM", "INT16", (1, len(data) // 2), data),)
    data = draw(st.binary(max_size=400))
    return (Tensor("BYTES", "UINT8", (1, len(data)), data),)


_shapes = st.lists(
    st.sampled_from([-1, 0, 1, 2, 64, 65, 1600, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1]), max_size=5
).map(tuple)
_names = st.sampled_from(["WAV", "PCM", "BYTES", "WAV_LENS", "AUDIO", "TRANSCRIPTS", "X", "", "W" * 300, "\x00"])


@st.composite
def _any_tensor(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from(_TYPES))
    shape = draw(_shapes | st.tuples(st.just(1), st.integers(0, 100)))
    elements = math.prod(shape) if shape and min(shape) >= 0 else 0
    exact = elements * _WIDTHS.get(datatype, 0)
    sizes = [0, 1, 3, 4, 100] + ([exact] if exact < 5000 else [])
    return Tensor(draw(_names), datatype, shape, draw(st.sampled_from(sizes).flatmap(lambda n: st.binary(max_size=n))))


_lengths = st.integers(-(2**31), 2**31 - 1).map(
    lambda value: Tensor("WAV_LENS", "INT32", (1, 1), struct.pack("<i", value))
)
_values = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-5, 50)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=40)
    | st.sampled_from(
        ["[" * 500, '["' + "a" * 5000 + '"]', "[]", "{}", "null", '[{"phrase": "x", "score": 1e999}]', "ctc_greedy"]
    )
)
_parameters = st.dictionaries(st.sampled_from(_OPTIONS) | st.text(max_size=10), _values, max_size=4)
_sequences = st.fixed_dictionaries(
    {},
    optional={
        "sequence_id": st.integers(0, 20)
        | st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, "a", "", "x" * 128, "x" * 129]),
        "sequence_start": st.booleans(),
        "sequence_end": st.booleans(),
    },
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """One that is sound in most of its parts, so that what is unsound gets as far as it can."""
    model = draw(st.sampled_from(_MODELS))
    tensors = draw(_good_tensors(model))
    sequence: dict[str, Any] = {}
    if model == STREAMING:
        sequence = {"sequence_id": draw(st.integers(1, 20)), "sequence_start": draw(st.booleans())}
        sequence["sequence_end"] = draw(st.booleans())
    request = {
        "model": model,
        "version": "",
        "tensors": tensors,
        "outputs": ("TRANSCRIPTS",) if model != DECODE else ("WAV",),
        "parameters": {},
        "sequence": sequence,
        "head": 0,
    }
    changes = {
        "model": st.sampled_from([*_MODELS, "none", "", "a/b", "..", "%00"]),
        "version": st.sampled_from(["1", "2", "-1", "x", "99999999999999999999"]),
        "tensors": st.lists(_any_tensor(), max_size=3).map(tuple)
        | _any_tensor().map(lambda one: (*tensors, one))
        | _lengths.map(lambda one: (*tensors, one)),
        "outputs": st.lists(_names, max_size=3).map(tuple),
        "parameters": _parameters,
        "sequence": _sequences,
        "head": st.sampled_from([-10, -1, 1, 1000, 2**31, -(2**31)]),
    }
    for name in draw(st.lists(st.sampled_from(sorted(changes)), max_size=3, unique=True)):
        request[name] = draw(changes[name])
    return Request(**request)  # type: ignore[arg-type]


# the wire


def _grpc_value(value: Any) -> Any:
    kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
    return service_pb2.InferParameter(**{kind: value})


class GrpcSender:
    """Sends over gRPC; used by one thread."""

    def __init__(self, server: RunningServer) -> None:
        self._channel = grpc.insecure_channel(server.grpc_url)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def send(self, request: Request) -> Answer:
        """Raises TimeoutError where no answer comes, and nothing else."""
        message = service_pb2.ModelInferRequest(model_name=request.model, model_version=request.version)
        for tensor in request.tensors:
            message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            message.raw_input_contents.append(tensor.data)
        for name in request.outputs:
            message.outputs.add(name=name)
        for name, value in {**request.parameters, **request.sequence}.items():
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                continue
            message.parameters[name].CopyFrom(_grpc_value(value))
        try:
            self._stub.ModelInfer(message, timeout=ANSWERED_WITHIN_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError("no answer over gRPC") from error
            return Answer(error.code().name, error.details() or "")
        return Answer("OK", "")

    def close(self) -> None:
        self._channel.close()


class HttpSender:
    """Sends over HTTP, a connection for each request."""

    def __init__(self, server: RunningServer) -> None:
        self._url = server.http_url

    def send(self, request: Request) -> Answer:
        """Raises TimeoutError where no answer comes, and nothing else."""
        inputs = [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "parameters": {"binary_data_size": len(tensor.data)},
            }
            for tensor in request.tensors
        ]
        document = {
            "inputs": inputs,
            "outputs": [{"name": name} for name in request.outputs],
            "parameters": {**request.parameters, **request.sequence},
        }
        head = json.dumps(document).encode()
        body = head + b"".join(tensor.data for tensor in request.tensors)
        version = f"/versions/{quote(request.version, safe='')}" if request.version else ""
        path = f"/v2/models/{quote(request.model, safe='')}{version}/infer"
        return self.post(path, body, {"Inference-Header-Content-Length": str(len(head) + request.head)})

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Any body at all."""
        connection = http.client.HTTPConnection(self._url, timeout=ANSWERED_WITHIN_S)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return Answer(str(response.status), _error_of(response.read()))
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException) as error:
            # Closed by the server, as is its right where it cannot read a request.
            return Answer("closed", type(error).__name__)
        finally:
            connection.close()


def _error_of(body: bytes) -> str:
    try:
        return str(json.loads(body).get("error", ""))
    except (ValueError, AttributeError):
        return ""
