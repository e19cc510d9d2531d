"""Two real servers behind HAProxy with the file of docker/scale: streams stay where they are, and none loses a word.

Outside `make test`: `make test-scale` runs it; the package haproxy must be installed.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import OfflineClient, Resume, StreamingClient
from tests.server.support import CHUNK, RATE, TIMEOUT_S, clip, counter, cut, eventually, noise, references

CONFIG = Path(__file__).parents[1] / "scale" / "haproxy.cfg"
NAMES = ("digits.flac", "command.flac", "number.flac")
STREAMS = 12
PATIENT = Resume(resume_seconds=120)


def speech(seed: int) -> list[np.ndarray]:
    """The clips in an order of its own, in chunks."""
    names = [NAMES[(seed + place) % len(NAMES)] for place in range(5)]
    parts = [part for name in names for part in (clip(name), np.zeros(RATE // 2, dtype=np.float32))]
    samples = np.concatenate(parts)
    return cut(samples + noise(len(samples) / RATE, -70)[: len(samples)], CHUNK)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Host:
    """Servers on the same ports, one after the other."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._stack = ExitStack()
        self.http, self.grpc, self.metrics = free_port(), free_port(), free_port()
        self.server: RunningServer

    def start(self) -> None:
        self.server = self._stack.enter_context(
            running_server(
                demo_checkpoint_dir(),
                http_port=self.http,
                grpc_port=self.grpc,
                metrics_port=self.metrics,
                environment={"OASR_DTYPE": "float32", "OASR_NUM_THREADS": "1"},
                log_path=self._log_path,
                ready_timeout_s=240,
                exit_timeout_s=1,
                self_test=False,
            )
        )

    def kill(self) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)
        assert self.server.wait(60)

    def stop(self) -> None:
        self._stack.close()

    def started(self) -> float:
        """Streams that it has been given."""
        return counter(self.server, "sequences_started")


@dataclass
class Scale:
    """Two servers and the proxy before them."""

    hosts: tuple[Host, Host]
    http: int
    grpc: int
    socket_path: Path

    def url(self, protocol: str) -> str:
        return f"127.0.0.1:{self.grpc if protocol == 'grpc' else self.http}"

    def tell(self, command: str) -> str:
        """A command on the admin socket, as docs/scaling.md shows them."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.socket_path))
            admin.sendall(f"{command}\n".encode())
            return admin.makefile().read().strip()

    def are_up(self, *names: str) -> bool:
        rows = [line.split(",") for line in self.tell("show stat").splitlines()]
        states = {(row[0], row[1]): row[17] for row in rows if len(row) > 17}
        return all(states[proxy, name] == "UP" for proxy in ("grpc", "http") for name in names)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scale]:
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "haproxy is not installed; on Debian/Ubuntu: apt-get install haproxy"
    folder = tmp_path_factory.mktemp("scale")
    hosts = (Host(folder / "1.log"), Host(folder / "2.log"))
    both = Scale(hosts, free_port(), free_port(), folder / "admin.sock")
    settings = {
        "BIND": "127.0.0.1",
        "HTTP_PORT": both.http,
        "GRPC_PORT": both.grpc,
        "STATS_PORT": free_port(),
        "ADMIN_SOCKET": both.socket_path,
    }
    for number, host in enumerate(hosts, 1):
        settings |= {f"SERVER_{number}": "127.0.0.1", f"SERVER_{number}_HTTP": host.http}
        settings |= {f"SERVER_{number}_GRPC": host.grpc}
    environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    proxy: subprocess.Popen[bytes] | None = None
    try:
        for host in hosts:
            host.start()
        with open(folder / "haproxy.log", "wb") as log:
            proxy = subprocess.Popen([program, "-f", str(CONFIG)], env=environment, stdout=log, stderr=log)
        assert eventually(both.socket_path.exists)
        assert eventually(lambda: both.are_up("server-1", "server-2")), (folder / "haproxy.log").read_text()
        yield both
    finally:
        if proxy is not None:
            proxy.terminate()
            proxy.wait(30)
        for host in hosts:
            host.stop()


@pytest.fixture(scope="module")
def texts(scale: Scale) -> list[str]:
    """What the streams say when nothing happens, asked of a server itself."""
    with StreamingClient(f"127.0.0.1:{scale.hosts[1].grpc}", timeout_s=TIMEOUT_S) as client:
        found = []
        for seed in range(len(NAMES)):
            pieces = speech(seed)
            with client.stream() as stream:
                found.append([*map(stream.send, pieces[:-1]), stream.finish(pieces[-1])][-1].text)
    assert all(references()[name] in text for text in found for name in NAMES)
    return found


@dataclass
class Ended:
    text: str
    resumes: int


def play(scale: Scale, number: int, at: int, until: Callable[[], None]) -> Ended:
    """A stream through the proxy that waits for `until` before its piece `at`."""
    protocol = ("grpc", "http")[number % 2]
    pieces = speech(number % len(NAMES))
    with (
        StreamingClient(scale.url(protocol), protocol, TIMEOUT_S) as client,
        client.stream(resume=PATIENT) as stream,
    ):
        for place, piece in enumerate(pieces[:-1]):
            if place == at:
                until()
            stream.send(piece)
        return Ended(stream.finish(pieces[-1]).text, stream.resumes)


def play_all(scale: Scale, meanwhile: Callable[[], object]) -> list[Ended]:
    """Streams over both protocols at once; `meanwhile` happens when all are at different places in the middle."""
    arrived, done = threading.Barrier(STREAMS + 1), threading.Event()

    def until() -> None:
        arrived.wait(2 * TIMEOUT_S)
        assert done.wait(2 * TIMEOUT_S)

    with ThreadPoolExecutor(STREAMS) as pool:
        runs = [pool.submit(play, scale, number, 2 + number, until) for number in range(STREAMS)]
        try:
            arrived.wait(2 * TIMEOUT_S)
            meanwhile()
        finally:
            done.set()
        return [run.result(4 * TIMEOUT_S) for run in runs]


def assert_whole(ended: list[Ended], texts: list[str]) -> None:
    assert [one.text for one in ended] == [texts[number % len(NAMES)] for number in range(STREAMS)]


def test_streams_are_shared_out_and_stay(scale: Scale, texts: list[str]) -> None:
    before = [host.started() for host in scale.hosts]
    ended = play_all(scale, lambda: None)
    assert_whole(ended, texts)
    assert [one.resumes for one in ended] == [0] * STREAMS
    given = [host.started() - count for host, count in zip(scale.hosts, before, strict=True)]
    assert sum(given) == STREAMS
    assert min(given) >= 1


def test_clips_take_turns(scale: Scale) -> None:
    for protocol in ("grpc", "http"):
        with OfflineClient(scale.url(protocol), protocol) as client:
            for name in NAMES:
                assert client.transcribe_samples(clip(name)).text == references()[name]


def test_a_drained_server_keeps_its_streams_and_gets_no_new_ones(scale: Scale, texts: list[str]) -> None:
    draining = scale.hosts[0]

    def drain() -> None:
        tables = "".join(scale.tell(f"show table {backend}") for backend in ("grpc", "http"))
        assert "server_id=1" in tables
        assert "server_id=2" in tables
        for backend in ("grpc", "http"):
            assert scale.tell(f"set server {backend}/server-1 state drain") == ""

    ended = play_all(scale, drain)
    assert_whole(ended, texts)
    assert [one.resumes for one in ended] == [0] * STREAMS
    before = draining.started()
    assert_whole(play_all(scale, lambda: None), texts)
    assert draining.started() == before
    # Back again while streams are open on the other one: they stay there.
    ended = play_all(scale, lambda: [scale.tell(f"set server {b}/server-1 state ready") for b in ("grpc", "http")])
    assert_whole(ended, texts)
    assert [one.resumes for one in ended] == [0] * STREAMS


def test_a_weight_sends_few_streams_to_a_new_version(scale: Scale, texts: list[str]) -> None:
    before = scale.hosts[0].started()
    for backend in ("grpc", "http"):
        assert scale.tell(f"set server {backend}/server-1 weight 0") == ""
    assert_whole(play_all(scale, lambda: None), texts)
    assert scale.hosts[0].started() == before
    for backend in ("grpc", "http"):
        scale.tell(f"set server {backend}/server-1 weight 100")


def test_a_server_killed_under_load_costs_no_word(scale: Scale, texts: list[str]) -> None:
    ended = play_all(scale, scale.hosts[0].kill)
    assert_whole(ended, texts)
    lost = sum(one.resumes > 0 for one in ended)
    print(f"\n{lost} of {STREAMS} streams were on the server that was killed, and were resumed on the other")
    assert 1 <= lost < STREAMS
    # It comes back while streams are open, which stay where they are.
    scale.hosts[0].start()
    ended = play_all(scale, lambda: eventually(lambda: scale.are_up("server-1")))
    assert_whole(ended, texts)


def test_the_administration_of_the_servers_is_not_for_clients(scale: Scale) -> None:
    for path in ("/v2/repository/index", "/v2/systemsharedmemory/status"):
        request = urllib.request.Request(f"http://{scale.url('http')}{path}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 403
