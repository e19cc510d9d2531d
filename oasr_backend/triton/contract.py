"""What the adapter assumes of the server, checked when a model starts."""

import json
from typing import Any

_MODULE_NAMES = (
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "InferenceResponse",
    "TritonError",
    "TritonModelException",
    "MetricFamily",
)
_STATUS_NAMES = ("INVALID_ARG", "UNAVAILABLE", "INTERNAL", "CANCELLED")
_ADVICE = "use a Triton release of 24.10 or later"


def check_backend(pb_utils: Any) -> None:
    """Raises RuntimeError when the Python backend lacks a name that the adapter uses."""
    missing = [name for name in _MODULE_NAMES if not hasattr(pb_utils, name)]
    missing += [f"TritonError.{name}" for name in _STATUS_NAMES if not hasattr(pb_utils.TritonError, name)]
    if missing:
        raise RuntimeError(f"this Triton Python backend lacks {', '.join(missing)}; {_ADVICE}")


def check_request(request: Any) -> None:
    """Raises RuntimeError when a request does not offer what the adapter reads of it.

    Run on the warm-up request, whose answer through a response sender is itself the proof that senders work in the
    default mode before the model is ready.
    """
    if not isinstance(request.flags(), int):
        raise RuntimeError(f"request.flags() is {request.flags()!r}, no number; {_ADVICE}")
    parameters = request.parameters()
    if not isinstance(parameters, str) or (parameters and not isinstance(json.loads(parameters), dict)):
        raise RuntimeError(f"request.parameters() is {parameters!r}, no JSON object; {_ADVICE}")
    if not isinstance(request.correlation_id(), int | str):
        raise RuntimeError(f"request.correlation_id() is {request.correlation_id()!r}; {_ADVICE}")
