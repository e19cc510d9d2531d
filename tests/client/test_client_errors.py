import pytest

from oasr_client import errors

URL = "127.0.0.1:8001"
LOST = "inference request for sequence 77 to model 'oasr_streaming' must specify the START flag on the first request"

# Status and message as the server and the two client libraries give them.
CASES = [
    (
        "StatusCode.UNAVAILABLE",
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Connection refused",
        errors.ServerUnreachable,
        "connection refused",
    ),
    (
        "StatusCode.UNAVAILABLE",
        "errors resolving nohost.invalid:8001: [field:hostname lookup error:Domain name not found]",
        errors.ServerUnreachable,
        "no such host",
    ),
    ("StatusCode.UNAVAILABLE", "Socket closed", errors.ServerUnreachable, "connection closed by the other side"),
    ("StatusCode.DEADLINE_EXCEEDED", "Deadline Exceeded", errors.ServerTimeout, "no answer within 3 s"),
    ("StatusCode.INVALID_ARGUMENT", LOST, errors.UnknownSequence, "does not know this stream"),
    ("400", LOST, errors.UnknownSequence, "does not know this stream"),
    ("StatusCode.NOT_FOUND", "Request for unknown model: 'x' is not found", errors.ModelNotFound, "model: 'x'"),
    ("404", "Request for unknown model: 'x' is not found", errors.ModelNotFound, "model: 'x'"),
    ("StatusCode.INVALID_ARGUMENT", "INVALID_ARGUMENT: unknown option 'foo'", errors.InvalidRequest, "unknown option"),
    (
        "400",
        "in ensemble 'oasr_transcribe', INVALID_ARGUMENT: not audio",
        errors.InvalidRequest,
        "not audio",
    ),
    ("503", "UNAVAILABLE: 32 streams are open, try again later", errors.ServerUnavailable, "32 streams"),
    ("StatusCode.UNAVAILABLE", "UNAVAILABLE: the engine has stopped", errors.ServerUnavailable, "the engine"),
    ("400", "STREAM_RESTARTED: the stream was begun anew", errors.RequestCancelled, "anew"),
    ("StatusCode.INVALID_ARGUMENT", "STREAM_ENDED: the stream is too long", errors.StreamEnded, "too long"),
    ("StatusCode.CANCELLED", "Locally cancelled by application!", errors.RequestCancelled, "cancelled"),
    ("499", "CANCELLED: the request was cancelled", errors.RequestCancelled, "cancelled"),
    ("500", "INTERNAL: the encoder failed", errors.ServerError, "the encoder failed"),
    ("405", "Method Not Allowed", errors.ServerError, "does not answer like a Triton server"),
    (None, 'Parameter "timeout" is a reserved parameter', errors.InvalidRequest, "reserved"),
    ("StatusCode.UNKNOWN", None, errors.ServerError, "no reason"),
]


@pytest.mark.parametrize(("status", "message", "kind", "sentence"), CASES)
def test_every_failure_has_its_type_and_sentence(
    status: str | None, message: str | None, kind: type[errors.OasrError], sentence: str
) -> None:
    error = errors.from_server(message, status, url=URL, timeout_s=3.0)
    assert type(error) is kind
    assert sentence in str(error)
    assert "\n" not in str(error)


def test_a_refused_connection_says_what_to_do() -> None:
    text = str(errors.unreachable(URL, "connection refused"))
    assert text.startswith("cannot reach the server at 127.0.0.1:8001 (connection refused)")
    assert "oasr serve" in text


def test_the_python_stack_of_a_model_is_not_shown() -> None:
    stack = "Failed to process the request(s), message: RuntimeError: boom\n\nAt:\n  /models/1/model.py(19): execute\n"
    error = errors.from_server(stack, "StatusCode.INTERNAL", url=URL, timeout_s=1.0)
    assert str(error) == "Failed to process the request(s), message: RuntimeError: boom"
    assert (error.code, error.status) == ("", "INTERNAL")


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ("INVALID_ARGUMENT: no", "INVALID_ARGUMENT", "no"),
        ("in ensemble 'e', AUDIO_TOO_LONG: 3 h", "AUDIO_TOO_LONG", "3 h"),
        ("INTERNAL:", "", "INTERNAL:"),
        ("Request for unknown model: 'x'", "", "Request for unknown model: 'x'"),
        ("in ensemble 'e', plain words", "", "plain words"),
    ],
)
def test_the_code_is_split_off(message: str, code: str, text: str) -> None:
    assert errors.split_code(message) == (code, text)


def test_an_unknown_code_falls_back_to_the_status() -> None:
    error = errors.from_server("AUDIO_TOO_LONG: 3 h", "StatusCode.INVALID_ARGUMENT", url=URL, timeout_s=1.0)
    assert type(error) is errors.InvalidRequest
    assert error.code == "AUDIO_TOO_LONG"
