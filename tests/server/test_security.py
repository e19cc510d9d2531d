"""Tokens, TLS and closed parts of the interface, on a real server that `oasr serve` has started."""

import asyncio
import csv
import http.client
import queue
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from oasr_backend.serve import Access, RunningServer, TlsFiles, running_server
from oasr_backend.server.process import group_members
from oasr_backend.utils.paths import demo_checkpoint_dir, model_repository_dir
from oasr_client import (
    AccessDenied,
    AsyncOfflineClient,
    AsyncStreamingClient,
    Credentials,
    InvalidRequest,
    OfflineClient,
    ServerUnreachable,
    StreamingClient,
)
from oasr_client.credentials import GRPC_HEADER
from tests.server.certificates import Authority, Identity
from tests.server.support import STREAMING, TIMEOUT_S, clip, clip_path, oasr, references
from tests.server.test_launcher import Serving, add_model, serving

pytestmark = pytest.mark.usefixtures("tritonserver")

TOKEN = "the-token-of-the-clients-of-this-test"
ADMIN_TOKEN = "another-token-for-who-loads-models"
WRONG_TOKENS = {"missing": "", "wrong": "the-token-of-some-other-server", "longer": TOKEN + "x", "prefix": TOKEN[:-1]}
NAME = "digits.flac"
TEXT = references()[NAME]


@dataclass(frozen=True)
class Secured:
    """A server with mutual TLS and a token."""

    grpc_url: str
    http_url: str
    serve: Serving
    log: Path
    client: Identity
    stranger: Identity

    def credentials(self, token: str = TOKEN, protocol: str = "grpc") -> Credentials:
        if protocol == "http":
            return Credentials(token)
        return Credentials(token, True, self.client.ca, self.client.cert, self.client.key)

    def url(self, protocol: str) -> str:
        return self.grpc_url if protocol == "grpc" else self.http_url

    def arguments(self, protocol: str) -> list[str]:
        """Of commands, without the token."""
        words = ["--protocol", protocol, "--server", self.url(protocol)]
        if protocol == "grpc":
            words += [f"--{name}={getattr(self.client, name)}" for name in ("ca", "cert", "key")]
        return words


@pytest.fixture(scope="module")
def secured(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory / "ours")
    own = authority.sign("127.0.0.1")
    words = ["--tls-cert", str(own.cert), "--tls-key", str(own.key), "--tls-client-ca", str(own.ca)]
    words += [
        "--checkpoint",
        str(demo_checkpoint_dir()),
        "--log",
        str(directory / "server.log"),
        "--exit-timeout",
        "5",
        "--set",
        "dtype=float32",
        "--set",
        "decode_max_audio_mib=4",
    ]
    with ExitStack() as running:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OASR_TOKEN", TOKEN)
            serve = running.enter_context(serving(model_repository_dir(), directory / "output", *words))
        found = re.search(r"ready; gRPC (\S+), HTTP (\S+),", serve.output)
        assert found, serve.output
        client = authority.sign("client@example.org")
        stranger = Authority(directory / "theirs").sign("client@example.org")
        yield Secured(found[1], found[2], serve, directory / "server.log", client, stranger)
        serve.process.send_signal(signal.SIGTERM)
        assert serve.process.wait(60) == 0, serve.output


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_commands_show_token_and_certificate(secured: Secured, protocol: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    load = ["bench", "--clips", str(clip_path(NAME)), "--seconds", "2", "--start", "1", "--max", "1"]
    for command, *inputs in (["canary"], ["stream", str(clip_path(NAME))], ["transcribe", str(clip_path(NAME))], load):
        done = oasr(command, *secured.arguments(protocol), "--token-file", str(file), *inputs)
        assert done.returncode == 0, done.stderr
        assert command in ("canary", "bench") or TEXT in done.stdout
    refused = oasr("transcribe", *secured.arguments(protocol), str(clip_path(NAME)))
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "refuses the request without its token: set OASR_TOKEN" in refused.stderr


def test_locust_shows_token_and_certificate(secured: Secured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if find_spec("locust") is None:
        pytest.skip('locust is not installed: pip install "oasr-triton[load]"')
    for name, value in {"ABANDONED": "0", "CANCELLED": "0.5", "SECONDS": "1"}.items():
        monkeypatch.setenv(f"OASR_LOAD_{name}", value)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "locust", "-f", str(root / "benchmarks" / "locustfile.py"), "--headless"]
    command += ["--users", "4", "--spawn-rate", "4", "--run-time", "6s", "--host", secured.grpc_url]
    command += [word for word in secured.arguments("grpc") if word.startswith(("--ca", "--cert", "--key"))]

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*command, *more], cwd=root, capture_output=True, text=True, timeout=2 * TIMEOUT_S)

    done = run("--token-file", str(file), "--csv", str(tmp_path / "load"))
    with (tmp_path / "load_stats.csv").open(encoding="utf-8") as rows:
        counted = {row["Name"]: row for row in csv.DictReader(rows)}
    # Of whole files it has heard each before the test.
    assert {"chunk", "final", "cancelled"} <= counted.keys(), done.stdout + done.stderr
    assert counted["Aggregated"]["Failure Count"] == "0", done.stdout + done.stderr
    refused = run()
    assert refused.returncode == 1
    assert "refuses the request without its token: set OASR_TOKEN" in refused.stderr
    unreadable = run("--token-file", str(tmp_path / "nowhere"))
    assert unreadable.returncode == 1
    assert "cannot be read" in unreadable.stderr


def test_commands_take_everything_from_the_environment(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OASR_TOKEN", TOKEN)
    for name in ("ca", "cert", "key"):
        monkeypatch.setenv(f"OASR_TLS_{name.upper()}", str(getattr(secured.client, name)))
    done = oasr("stream", "--server", secured.grpc_url, str(clip_path(NAME)))
    assert done.returncode == 0, done.stderr
    assert TEXT in done.stdout


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_client_library_shows_token_and_certificate(secured: Secured, protocol: str) -> None:
    url, credentials = secured.url(protocol), secured.credentials(protocol=protocol)
    with StreamingClient(url, protocol, credentials=credentials) as live, live.stream() as stream:
        stream.send(clip(NAME))
        assert stream.finish().text == TEXT
    with OfflineClient(url, protocol, credentials=credentials) as whole:
        assert whole.transcribe_file(clip_path(NAME)).text == TEXT

    async def both() -> tuple[str, str]:
        async with (
            AsyncStreamingClient(url, protocol, credentials=credentials) as live,
            live.stream() as stream,
            AsyncOfflineClient(url, protocol, credentials=credentials) as whole,
        ):
            assert await live.is_ready()
            await stream.send(clip(NAME))
            return (await stream.finish()).text, (await whole.transcribe_file(clip_path(NAME))).text

    assert asyncio.run(both()) == (TEXT, TEXT)


@pytest.mark.parametrize("token", WRONG_TOKENS.values(), ids=WRONG_TOKENS)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_missing_or_wrong_token_is_refused_at_once(secured: Secured, protocol: str, token: str) -> None:
    url, credentials = secured.url(protocol), secured.credentials(token, protocol)
    with (
        StreamingClient(url, protocol, credentials=credentials) as live,
        live.stream(resume=True) as stream,
        pytest.raises(AccessDenied) as caught,
    ):
        stream.send(clip(NAME))
    assert url in str(caught.value)
    assert not token or token not in str(caught.value)
    with (
        OfflineClient(url, protocol, credentials=credentials, retry_seconds=60) as whole,
        pytest.raises(AccessDenied),
    ):
        whole.transcribe_file(clip_path(NAME))


def bearer(token: str) -> dict[str, str]:
    return {GRPC_HEADER: f"Bearer {token}"} if token else {}


CLIENT_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "server metadata": lambda client, headers: client.get_server_metadata(headers=headers),
    "model metadata": lambda client, headers: client.get_model_metadata(STREAMING, headers=headers),
    "model config": lambda client, headers: client.get_model_config(STREAMING, headers=headers),
    "statistics": lambda client, headers: client.get_inference_statistics(headers=headers),
}
CLOSED_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda client, headers: client.get_model_repository_index(headers=headers),
    "load": lambda client, headers: client.load_model(STREAMING, headers=headers),
    "load of own files": lambda client, headers: client.load_model(
        "mine", headers=headers, config='{"backend": "python"}', files={"file:1/model.py": b"raise SystemExit"}
    ),
    "unload": lambda client, headers: client.unload_model(STREAMING, headers=headers),
    "system memory": lambda client, headers: client.register_system_shared_memory("a", "/a", 16, headers=headers),
    "memory status": lambda client, headers: client.get_system_shared_memory_status(headers=headers),
    "cuda memory": lambda client, headers: client.register_cuda_shared_memory("a", b"x" * 64, 0, 16, headers=headers),
    "memory release": lambda client, headers: client.unregister_system_shared_memory(headers=headers),
    "trace": lambda client, headers: client.update_trace_settings(settings={"trace_file": "/tmp/x"}, headers=headers),
    "trace settings": lambda client, headers: client.get_trace_settings(headers=headers),
    "logging": lambda client, headers: client.update_log_settings({"log_verbose_level": 9}, headers=headers),
    "log settings": lambda client, headers: client.get_log_settings(headers=headers),
}
CLIENT_PATHS = (
    "GET /v2",
    f"GET /v2/models/{STREAMING}",
    f"GET /v2/models/{STREAMING}/config",
    f"GET /v2/models/{STREAMING}/stats",
    "GET /v2/models/stats",
    f"POST /v2/models/{STREAMING}/infer",
    f"POST /v2/models/{STREAMING}/versions/1/infer",
    f"POST /v2/models/{STREAMING}/generate",
    f"POST /v2/models/{STREAMING}/generate_stream",
)
CLOSED_PATHS = (
    "POST /v2/repository/index",
    f"POST /v2/repository/models/{STREAMING}/load",
    f"POST /v2/repository/models/{STREAMING}/unload",
    "GET /v2/systemsharedmemory/status",
    "POST /v2/systemsharedmemory/region/a/register",
    "POST /v2/systemsharedmemory/unregister",
    "GET /v2/cudasharedmemory/status",
    "POST /v2/cudasharedmemory/region/a/register",
    "GET /v2/trace/setting",
    "POST /v2/trace/setting",
    f"POST /v2/models/{STREAMING}/trace/setting",
    "GET /v2/logging",
    "POST /v2/logging",
)


def assert_restricted(call: Callable[[], Any]) -> None:
    with pytest.raises(InferenceServerException, match="This protocol is restricted"):
        call()


def http_status(url: str, request: str, token: str = "") -> int:
    method, path = request.split()
    connection = http.client.HTTPConnection(url, timeout=TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body="{}" if method == "POST" else None, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@contextmanager
def grpc_client(url: str, identity: Identity | None) -> Iterator[Any]:
    tls: dict[str, Any] = {}
    if identity is not None:
        tls = {"ssl": True, "root_certificates": str(identity.ca)}
        tls |= {"certificate_chain": str(identity.cert), "private_key": str(identity.key)}
    client = triton_grpc.InferenceServerClient(url, **tls)
    try:
        yield client
    finally:
        client.close()


def test_without_the_token_no_part_answers_but_health(secured: Secured) -> None:
    with grpc_client(secured.grpc_url, secured.client) as client:
        assert client.is_server_ready() and client.is_model_ready(STREAMING)
        for call in CLIENT_CALLS.values():
            for token in WRONG_TOKENS.values():
                assert_restricted(lambda call=call, token=token: call(client, bearer(token)))
            assert call(client, bearer(TOKEN)) is not None
        answers: queue.Queue[Any] = queue.Queue()
        client.start_stream(lambda result, error: answers.put(error or result))
        # The refusal may be here before the request is sent.
        with suppress(InferenceServerException):
            client.async_stream_infer(STREAMING, [])
        assert "This protocol is restricted" in str(answers.get(timeout=TIMEOUT_S))
        client.stop_stream()
    assert http_status(secured.http_url, "GET /v2/health/ready") == 200
    for request in CLIENT_PATHS:
        for token in WRONG_TOKENS.values():
            assert http_status(secured.http_url, request, token) == 403, request
        assert http_status(secured.http_url, request, TOKEN) != 403, request


def test_what_reaches_into_the_server_is_closed_even_to_the_token(secured: Secured) -> None:
    with grpc_client(secured.grpc_url, secured.client) as client:
        for call in CLOSED_CALLS.values():
            assert_restricted(lambda call=call: call(client, bearer(TOKEN)))
    for request in CLOSED_PATHS:
        assert http_status(secured.http_url, request, TOKEN) == 403, request


def test_what_reaches_into_the_server_is_closed_without_any_token(server: RunningServer) -> None:
    with grpc_client(server.grpc_url, None) as client:
        for call in CLOSED_CALLS.values():
            assert_restricted(lambda call=call: call(client, {}))
        for call in CLIENT_CALLS.values():
            assert call(client, {}) is not None
    for request in CLOSED_PATHS:
        assert http_status(server.http_url, request) == 403, request


def test_a_server_is_known_by_its_certificate_and_a_client_by_its_own(secured: Secured) -> None:
    ours, theirs = secured.client, secured.stranger
    refused = {
        "plaintext": Credentials(TOKEN),
        "no authority": Credentials(TOKEN, True, None, ours.cert, ours.key),
        "another authority": Credentials(TOKEN, True, theirs.ca, ours.cert, ours.key),
        "no certificate": Credentials(TOKEN, True, ours.ca),
        "a certificate of others": Credentials(TOKEN, True, ours.ca, theirs.cert, theirs.key),
    }
    for name, credentials in refused.items():
        with (
            OfflineClient(secured.grpc_url, credentials=credentials) as client,
            pytest.raises(ServerUnreachable) as caught,
        ):
            client.transcribe_samples(clip(NAME))
        words = "not signed by an authority that is trusted" if "authority" in name else "--tls, --cert and --key"
        assert words in str(caught.value), name
    with OfflineClient(secured.grpc_url, credentials=secured.credentials()) as client:
        assert client.transcribe_samples(clip(NAME)).text == TEXT


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_file_that_is_too_large_is_refused_in_words_and_the_server_lives(secured: Secured, protocol: str) -> None:
    url, credentials = secured.url(protocol), secured.credentials(protocol=protocol)
    with OfflineClient(url, protocol, credentials=credentials) as client:
        with pytest.raises(InvalidRequest, match="AUDIO has 5 MiB and max_audio_mib is 4"):
            client.transcribe_file(bytes(5 << 20))
        assert client.transcribe_file(clip_path(NAME)).text == TEXT


@contextmanager
def tls_proxy(identity: Identity, upstream: str) -> Iterator[str]:
    """HOST:PORT of a proxy that takes TLS and passes on what is in it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.cert, identity.key)
    host, port = upstream.split(":")
    loop = asyncio.new_event_loop()
    # A client that does not trust it leaves in the middle of the handshake.
    loop.set_exception_handler(lambda loop, context: None)
    started: queue.Queue[str] = queue.Queue()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(copy(reader, behind_writer), copy(behind_reader, writer))

    async def main() -> None:
        proxy = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        started.put("{}:{}".format(*proxy.sockets[0].getsockname()))

    starting = loop.create_task(main())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield started.get(timeout=30)
        assert starting.done()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def test_http_goes_through_a_proxy_with_tls(secured: Secured, tmp_path: Path) -> None:
    identity = Authority(tmp_path).sign("127.0.0.1")
    trusting, doubting = Credentials(TOKEN, True, identity.ca), Credentials(TOKEN, True, secured.client.ca)

    async def transcribed(url: str, credentials: Credentials) -> str:
        async with AsyncOfflineClient(url, "http", credentials=credentials) as client:
            return (await client.transcribe_samples(clip(NAME))).text

    with tls_proxy(identity, secured.http_url) as url:
        with OfflineClient(url, "http", credentials=trusting) as client:
            assert client.transcribe_samples(clip(NAME)).text == TEXT
        assert asyncio.run(transcribed(url, trusting)) == TEXT
        with (
            OfflineClient(url, "http", credentials=doubting) as client,
            pytest.raises(ServerUnreachable, match="not signed by an authority that is trusted"),
        ):
            client.transcribe_samples(clip(NAME))
        with pytest.raises(ServerUnreachable, match="not signed by an authority that is trusted"):
            asyncio.run(transcribed(url, doubting))


def test_the_token_is_in_no_log_no_process_list_and_no_environment_of_the_server(secured: Secured) -> None:
    assert TOKEN not in secured.serve.output
    assert "the process list" not in secured.serve.output
    log = secured.log.read_text(errors="replace")
    assert "Started GRPCInferenceService" in log
    assert TOKEN not in log
    pid = secured.serve.server_pid()
    members = group_members(pid)
    assert len(members) > 3
    for member in members:
        for name in ("cmdline", "environ"):
            assert TOKEN.encode() not in Path(f"/proc/{member}/{name}").read_bytes()
    launcher = Path(f"/proc/{secured.serve.process.pid}/cmdline").read_bytes()
    assert TOKEN.encode() not in launcher


def test_http_and_metrics_stay_on_this_machine_when_grpc_with_tls_does_not(tmp_path: Path) -> None:
    """And models are loaded by who shows the admin token alone."""
    identity = Authority(tmp_path / "ca").sign("127.0.0.1")
    repository = add_model(tmp_path / "models")
    with running_server(
        model_repository=repository,
        host="0.0.0.0",
        metrics_host="127.0.0.1",
        tls=TlsFiles(identity.cert, identity.key),
        access=Access(TOKEN, ADMIN_TOKEN),
        exit_timeout_s=5,
        ready_timeout_s=60,
    ) as server:
        # The same machine by another address: only what listens to all of them is there.
        reached = {name for name, url in urls_of(server).items() if is_open("127.0.0.2", url.rpartition(":")[2])}
        assert reached == {"grpc"}
        with grpc_client(server.grpc_url, identity) as client:
            for token in ("", TOKEN):
                assert_restricted(lambda token=token: client.unload_model("plain", headers=bearer(token)))
                assert http_status(server.http_url, "POST /v2/repository/models/plain/unload", token) == 403
            assert_restricted(lambda: client.get_server_metadata(headers=bearer(ADMIN_TOKEN)))
            client.unload_model("plain", headers=bearer(ADMIN_TOKEN))
            client.load_model("plain", headers=bearer(ADMIN_TOKEN))
            (row,) = client.get_model_repository_index(headers=bearer(ADMIN_TOKEN)).models
            assert (row.name, row.state) == ("plain", "READY")
        for secret in (TOKEN, ADMIN_TOKEN):
            assert secret not in server.log_text()
            assert secret.encode() not in Path(f"/proc/{server.pid}/cmdline").read_bytes()


def urls_of(server: RunningServer) -> dict[str, str]:
    return {"http": server.http_url, "grpc": server.grpc_url, "metrics": server.metrics_url}


def is_open(address: str, port: str) -> bool:
    try:
        socket.create_connection((address, int(port)), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True
