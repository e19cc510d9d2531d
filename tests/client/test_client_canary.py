import pytest
from client_fakes import Call, FakeTransport

from oasr_client import canary
from oasr_client.errors import InvalidRequest, OasrError, ServerError, ServerUnavailable


def healthy(call: Call) -> OasrError | None:
    if canary.UNKNOWN_OPTION in call.parameters:
        return InvalidRequest(f"unknown option '{canary.UNKNOWN_OPTION}'")
    return None


def test_a_healthy_server_is_asked_everything(fake: FakeTransport) -> None:
    fake.answer = healthy
    report = canary.run(fake, 5.0)
    assert report.ok
    assert report.line.startswith("ok 127.0.0.1:1: 4 checks in ")
    sequence = [(True, False), (False, False), (False, True)]
    assert fake.flags == [*sequence, *sequence, (True, True)]
    assert isinstance(fake.calls[0].sequence.id, int)
    assert isinstance(fake.calls[3].sequence.id, str)
    assert (fake.calls[7].model, fake.calls[7].samples.size) == ("oasr_offline", 8000)
    assert not any(call.samples.any() for call in fake.calls)


def test_a_full_server_is_healthy(fake: FakeTransport) -> None:
    full = ServerUnavailable("128 streams are open", code="SERVER_FULL")
    fake.answer = lambda call: healthy(call) if call.sequence is None else full
    report = canary.run(fake, 5.0)
    assert report.ok
    assert report.checks == ("offline clip",)
    assert report.line.endswith(", the server is full")
    fake.answer = lambda call: ServerUnavailable("the model is being stopped", code="SHUTTING_DOWN")
    assert not canary.run(fake, 5.0).ok


def test_parameters_that_are_lost_are_noticed(fake: FakeTransport) -> None:
    report = canary.run(fake, 5.0)
    assert not report.ok
    assert "request parameters do not reach the model" in report.line
    assert report.checks == ("sequence", "sequence with a string id")


def test_a_refusal_for_another_reason_is_noticed(fake: FakeTransport) -> None:
    fake.answer = lambda call: InvalidRequest("bad day") if call.parameters else None
    assert "without naming it: bad day" in canary.run(fake, 5.0).line


def test_a_wrong_shape_is_noticed(fake: FakeTransport) -> None:
    fake.shape = (1, 1)
    assert "shape [1, 1]" in canary.run(fake, 5.0).line


def test_a_sequence_that_fails_is_given_back(fake: FakeTransport) -> None:
    fake.answer = lambda call: ServerError("the encoder failed") if len(fake.calls) == 2 else healthy(call)
    report = canary.run(fake, 5.0)
    assert report.line == "sequence failed: the encoder failed"
    assert fake.flags[-1] == (False, True)


def test_the_time_is_for_all_checks_together(fake: FakeTransport) -> None:
    report = canary.run(fake, 0.0)
    assert not report.ok
    assert "time for all checks" in report.line
    assert fake.flags in ([], [(False, True)])


def test_models_can_be_chosen(fake: FakeTransport) -> None:
    assert canary.run(fake, 5.0, ["oasr_offline"]).checks == ("offline clip",)
    with pytest.raises(ValueError, match="no canary for nope"):
        canary.check(models=["nope"])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_absent_server_is_reported_and_not_raised(refusing_port: int, protocol: str) -> None:
    report = canary.check(f"127.0.0.1:{refusing_port}", protocol, 5.0)
    assert not report.ok
    assert f"cannot reach the server at 127.0.0.1:{refusing_port}" in report.line
