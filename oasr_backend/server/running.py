"""A server that runs: starting it up to readiness, and its handle."""

import http.client
import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from oasr_backend.server import log, ports
from oasr_backend.server.compat import compat_models
from oasr_backend.server.environment import server_environment
from oasr_backend.server.errors import LaunchError, StartCancelled
from oasr_backend.server.install import find_server
from oasr_backend.server.options import ServeOptions, find_models
from oasr_backend.server.process import ServerProcess
from oasr_backend.server.workspace import Workspace, create_workspace

# What the server needs beyond its exit timeout to unload models and end their processes.
_UNLOAD_S = 15.0
_STUB_TIMEOUT_S = 120
_TEST_MARGIN_S = 5.0


class RunningServer:
    """A server that was ready when this object was handed out. Thread-safe; `stop()` may be called again."""

    def __init__(
        self,
        process: ServerProcess,
        workspace: Workspace,
        models: tuple[str, ...],
        urls: tuple[str, str, str],
        log_path: Path,
        grace_s: float,
    ) -> None:
        self._process = process
        self._workspace = workspace
        self._grace_s = grace_s
        self._removal = threading.Lock()
        self._removed = False
        self.http_url, self.grpc_url, self.metrics_url = urls
        """`host:port` each, as tritonclient takes them; metrics are at http://<metrics_url>/metrics."""
        self.log_path = log_path
        self.models = models
        """Names that it answers to."""

    @property
    def pid(self) -> int:
        """The tritonserver process, leader of the process group that holds its model processes."""
        return self._process.pid

    @property
    def shm_prefix(self) -> str:
        """What the names of this server's files in /dev/shm start with."""
        return self._workspace.shm_prefix

    @property
    def returncode(self) -> int | None:
        """As `subprocess` gives it; None while the server runs."""
        return self._process.returncode

    def is_alive(self) -> bool:
        return not self._process.ended

    def wait(self, timeout_s: float) -> bool:
        """Waits until the server process ends; returns whether it has."""
        return self._process.wait(timeout_s)

    def log_tail(self, lines: int = 40) -> str:
        return log.tail(self.log_path, lines)

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def stop(self, *, force: bool = False, impatient: Callable[[], bool] = lambda: False) -> bool:
        """Ends the server; open sequences get the exit timeout, unless forced or once `impatient` is true.

        Returns whether it ended when asked and cut nobody off. Afterwards no process of the server, no shared-memory
        file and no temporary file is left.
        """
        try:
            if not force:
                # Triton ends with an error when its exit timeout cut something off.
                return self._process.stop(self._grace_s, impatient) and self.returncode == 0
            self._process.kill()
            return False
        finally:
            self._clean()

    def _clean(self) -> None:
        with self._removal:
            if not self._removed:
                self._workspace.remove()
                self._removed = True


def check_surroundings(options: ServeOptions) -> None:
    """Looks for what can be missing in a moment: models, server and ports. Raises LaunchError."""
    find_models(options.model_repository, options.models)
    find_server(os.environ)
    _settled_ports(options, ports.resolve_host(options.host))


def start_server(options: ServeOptions, cancelled: Callable[[], bool] = lambda: False) -> RunningServer:
    """Starts a server and returns it when every model is ready and the self-test has passed.

    Raises LaunchError when it cannot be started, StartCancelled when asked to give up; nothing is left behind then.
    """
    repository, models = find_models(options.model_repository, options.models)
    compat = compat_models(models) if options.compat_names else {}
    install = find_server(os.environ)
    environment = server_environment(options, models, install, os.environ)
    address = ports.resolve_host(options.host)
    numbers = _settled_ports(options, address)

    workspace = create_workspace()
    try:
        workspace.link_backend(install, os.environ)
        if options.models or compat:
            own = {name: repository / name for name in models}
            repository = workspace.link_models({**own, **compat})
        command = server_command(options, install.binary, repository, workspace, address, numbers)
        log_path = options.log_path.resolve() if options.log_path else workspace.directory / "server.log"
        process = ServerProcess(command, environment, workspace.directory, log_path, [workspace.lock])
    except BaseException as error:
        workspace.remove()
        if isinstance(error, OSError):
            raise LaunchError(f"the server cannot be prepared: {error}") from None
        raise
    urls = (ports.url(address, numbers[0]), ports.url(address, numbers[1]), ports.url(address, numbers[2]))
    names = (*models, *compat)
    server = RunningServer(process, workspace, names, urls, log_path, options.exit_timeout_s + _UNLOAD_S)
    try:
        wait_ready(server, options.ready_timeout_s, cancelled)
        if options.self_test:
            run_self_test(server, models, options.self_test_timeout_s, cancelled)
    except BaseException:
        server.stop(force=True)
        raise
    return server


def _settled_ports(options: ServeOptions, address: str) -> list[int]:
    wanted = (
        ("--http-port", options.http_port),
        ("--grpc-port", options.grpc_port),
        ("--metrics-port", options.metrics_port),
    )
    return ports.settle_ports(address, wanted)


def server_command(
    options: ServeOptions, binary: Path, repository: Path, workspace: Workspace, address: str, numbers: list[int]
) -> list[str]:
    """The command line of tritonserver."""
    http_port, grpc_port, metrics_port = numbers
    return [
        str(binary),
        f"--model-repository={repository}",
        f"--backend-directory={workspace.backend_directory}",
        f"--http-address={address}",
        f"--grpc-address={address}",
        f"--metrics-address={address}",
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        f"--exit-timeout-secs={options.exit_timeout_s}",
        "--model-control-mode=none",
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--backend-config=python,shm-region-prefix-name={workspace.shm_prefix}",
        f"--backend-config=python,stub-timeout-seconds={_STUB_TIMEOUT_S}",
        f"--log-verbose={options.log_verbose}",
        *options.server_arguments,
    ]


def wait_ready(server: RunningServer, timeout_s: float, cancelled: Callable[[], bool] = lambda: False) -> None:
    """Returns when the server says that every model is ready; raises LaunchError when it ends or takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        if _answers_ready(server.http_url) and server.is_alive():
            return
        if cancelled():
            raise StartCancelled
        if not server.is_alive():
            raise LaunchError(f"the server did not start: {log.failure_reason(server.log_text())}")
        if time.monotonic() > deadline:
            raise LaunchError(
                f"the server was not ready within {timeout_s:g} s ({log.failure_reason(server.log_text())}); "
                "give it longer with --ready-timeout"
            )
        server.wait(0.1)


def run_self_test(
    server: RunningServer, models: Collection[str], timeout_s: float, cancelled: Callable[[], bool] = lambda: False
) -> None:
    """Asks those of the models that have a canary; raises LaunchError when one does not answer as clients need."""
    # Imported here: the command line must start quickly, and this brings in the gRPC client.
    from oasr_client import canary

    asked = [name for name in canary.MODELS if name in models]
    if not asked:
        return
    outcome: list[canary.CanaryReport | Exception] = []

    def check() -> None:
        try:
            outcome.append(canary.check(server.grpc_url, "grpc", timeout_s, models=asked))
        except Exception as error:
            outcome.append(error)

    # In a thread, so that an interrupt or the end of the server is noticed while it waits for an answer.
    thread = threading.Thread(target=check, name="self-test", daemon=True)
    thread.start()
    deadline = time.monotonic() + timeout_s + _TEST_MARGIN_S
    while thread.is_alive():
        thread.join(0.1)
        if cancelled():
            raise StartCancelled
        if not server.is_alive():
            raise LaunchError(f"the server ended during its self-test: {log.failure_reason(server.log_text())}")
        if time.monotonic() > deadline:
            raise LaunchError(f"the server is up but its self-test got no answer within {timeout_s:g} s")
    result = outcome[0]
    if isinstance(result, Exception):
        raise LaunchError(f"the self-test cannot be run: {result}; skip it with --no-self-test")
    if not result.ok:
        raise LaunchError(f"the server is up but its self-test failed: {result.detail}")


def _answers_ready(url: str) -> bool:
    connection = http.client.HTTPConnection(url, timeout=2)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
