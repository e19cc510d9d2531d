import http.server
import re
import threading
import time

import numpy as np
import pytest

from oasr_client import errors, transport, wire

PROTOCOLS = ("grpc", "http")


def ask(via: transport.Transport, timeout_s: float | None = None) -> None:
    via.infer("m", {"PCM": np.zeros((1, 4), dtype=np.int16)}, ["TRANSCRIPTS"], timeout_s=timeout_s)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_connection_is_unreachable(refusing_port: int, protocol: str) -> None:
    with transport.connect(f"127.0.0.1:{refusing_port}", protocol) as via:
        with pytest.raises(errors.ServerUnreachable, match="connection refused"):
            ask(via)
        with pytest.raises(errors.ServerUnreachable):
            via.is_ready("m")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_silence_is_a_timeout_and_the_transport_survives_it(silent_port: int, protocol: str) -> None:
    with transport.connect(f"127.0.0.1:{silent_port}", protocol, timeout_s=30.0) as via:
        for _ in range(3):
            begin = time.monotonic()
            with pytest.raises(errors.ServerTimeout, match=r"no answer within 0\.2 s"):
                ask(via, timeout_s=0.2)
            assert time.monotonic() - begin < 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_closed_transport_says_so(refusing_port: int, protocol: str) -> None:
    via = transport.connect(f"127.0.0.1:{refusing_port}", protocol)
    via.close()
    via.close()
    with pytest.raises(errors.RequestCancelled, match="closed by this program"):
        ask(via)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_kind_of_server_is_an_error_in_words(protocol: str) -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with (
            transport.connect(f"127.0.0.1:{server.server_port}", protocol, 5.0) as via,
            pytest.raises(errors.OasrError),
        ):
            ask(via)
    finally:
        server.shutdown()
        server.server_close()


def test_threads_share_an_http_transport(refusing_port: int) -> None:
    caught: list[errors.OasrError] = []

    def work(via: transport.Transport) -> None:
        try:
            ask(via)
        except errors.OasrError as error:
            caught.append(error)

    with transport.connect(f"127.0.0.1:{refusing_port}", "http") as via:
        threads = [threading.Thread(target=work, args=(via,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert [type(error) for error in caught] == [errors.ServerUnreachable] * 8


@pytest.mark.parametrize(
    ("given", "address"),
    [("localhost:8001", "localhost:8001"), ("http://a.b:80/", "a.b:80"), ("grpc://[::1]:9", "[::1]:9")],
)
def test_addresses(given: str, address: str) -> None:
    assert transport.check_url(given) == address


@pytest.mark.parametrize("given", ["", "localhost", ":8001", "a:b", "a:0", "a:65536", "a:-1"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        transport.check_url(given)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="grpc or http"):
        transport.connect(protocol="ftp")


def test_default_addresses_follow_the_protocol() -> None:
    for protocol, url in (("grpc", "127.0.0.1:8001"), ("http", "127.0.0.1:8000")):
        with transport.connect(protocol=protocol) as via:
            assert via.url == url


def test_words_as_separate_elements_are_joined() -> None:
    assert transport.text_of({"TRANSCRIPTS": np.array([b"a", "ä".encode()], dtype=object)}) == "a ä"
    assert transport.text_of({"TRANSCRIPTS": np.array([], dtype=object)}) == ""


@pytest.mark.parametrize("name", [7, 2**63 - 1, "call-12", "a b\r\nevil: 1", "日本語", "x" * 500])
def test_a_proxy_can_tell_streams_apart(name: int | str) -> None:
    headers = wire.sequence_headers(transport.SequenceStep(name))
    assert list(headers) == ["oasr-sequence"]
    assert re.fullmatch(r"[\w.~%-]{1,64}", headers["oasr-sequence"], re.ASCII)
    assert wire.sequence_headers(None) == {}
