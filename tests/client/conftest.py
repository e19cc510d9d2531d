"""Fixtures of the client's tests."""

import socket
from collections.abc import Iterator

import pytest
from client_fakes import FakeTransport


@pytest.fixture
def fake() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def refusing_port() -> Iterator[int]:
    """A port of this machine on which nobody listens; it is held so that nobody else can take it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        yield listener.getsockname()[1]
