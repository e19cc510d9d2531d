"""A server that runs: starting it up to readiness, and its handle."""

import http.client
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from oasr_backend.server import log, ports
from oasr_backend.server.access import access_arguments
from oasr_backend.server.compat import compat_models
from oasr_backend.server.concealment import conceal
from oasr_backend.server.environment import server_environment, weights_name
from oasr_backend.server.errors import LaunchError, StartCancelled
from oasr_backend.server.install import find_server, request_limit_arguments
from oasr_backend.server.model_watch import ModelWatch
from oasr_backend.server.options import ServeOptions, check_checkpoint, find_models
from oasr_backend.server.process import ServerProcess
from oasr_backend.server.tls import tls_arguments
from oasr_backend.server.workspace import Workspace, create_workspace
from oasr_backend.utils.lease import DIRECTORY_VARIABLE

# What the server needs beyond its exit timeout to unload models and end their processes.
_UNLOAD_S = 15.0
_STUB_TIMEOUT_S = 120
_TEST_MARGIN_S = 5.0
# What a server that has lost a model gets to drain the others, and its clients to be told.
_LOST_DRAIN_S = 5.0


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
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._process = process
        self._workspace = workspace
        self._grace_s = grace_s
        self._secrets = secrets
        self._log_begin = log_path.stat().st_size if log_path.exists() else 0
        self._models = ModelWatch(workspace.lease_directory, lambda: process.ended, lambda: process.stop(_LOST_DRAIN_S))
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

    @property
    def lost_models(self) -> tuple[str, ...]:
        """Models whose processes are gone, because of which the server was ended."""
        return self._models.lost

    def watch_models(self) -> None:
        """From now on the server ends within seconds when a process of a model is gone."""
        self._models.start()

    def is_alive(self) -> bool:
        return not self._process.ended

    def conceal_secrets(self) -> bool:
        """Takes tokens out of the process list once the server has read its arguments; whether they are out."""
        if self._secrets and conceal(self.pid, self._secrets):
            self._secrets = ()
        return not self._secrets

    def has_logged(self) -> bool:
        """Whether the server has begun its log, and so is done with its arguments."""
        return self.log_path.exists() and self.log_path.stat().st_size > self._log_begin

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
        self._models.stop()
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
    request_limit_arguments(find_server(os.environ), options.max_request_mib)
    _settled_ports(options, addresses_of(options))


def start_server(options: ServeOptions, cancelled: Callable[[], bool] = lambda: False) -> RunningServer:
    """Starts a server and returns it when every model is ready and the self-test has passed.

    Raises LaunchError when it cannot be started, StartCancelled when asked to give up; nothing is left behind then.
    """
    repository, models = find_models(options.model_repository, options.models)
    compat = compat_models(models) if options.compat_names else {}
    name = weights_name({**os.environ, **options.environment})
    versions = {number: check_checkpoint(str(place), name) for number, place in options.versions.items()}
    install = find_server(os.environ)
    settings = server_environment(options, models, install, os.environ)
    limits = request_limit_arguments(install, options.max_request_mib)
    addresses = addresses_of(options)
    numbers = _settled_ports(options, addresses)

    workspace = create_workspace()
    try:
        workspace.link_backend(install, os.environ)
        if options.models or compat or versions:
            own = {name: repository / name for name in models}
            repository = workspace.link_models({**own, **compat}, versions)
        command = server_command(options, install.binary, repository, workspace, addresses, numbers)
        command += limits
        log_path = options.log_path.resolve() if options.log_path else workspace.directory / "server.log"
        environment = {**settings, DIRECTORY_VARIABLE: str(workspace.lease_directory)}
        process = ServerProcess(command, environment, workspace.directory, log_path, [workspace.lock])
    except BaseException as error:
        workspace.remove()
        if isinstance(error, OSError):
            raise LaunchError(f"the server cannot be prepared: {error}") from None
        raise
    http_url, grpc_url, metrics_url = map(ports.url, (addresses.http, addresses.grpc, addresses.metrics), numbers)
    names = (*models, *compat)
    server = RunningServer(
        process,
        workspace,
        names,
        (http_url, grpc_url, metrics_url),
        log_path,
        options.exit_timeout_s + _UNLOAD_S,
        options.access.secrets,
    )
    try:
        wait_ready(server, options.ready_timeout_s, cancelled)
        if options.self_test:
            run_self_test(server, models, options, cancelled)
    except BaseException:
        server.stop(force=True)
        raise
    server.watch_models()
    return server


@dataclass(frozen=True)
class Addresses:
    """The IPv4 address that each port listens on."""

    http: str
    grpc: str
    metrics: str


def addresses_of(options: ServeOptions) -> Addresses:
    """Where to listen; raises LaunchError for a host without an IPv4 address."""
    # Triton's HTTP knows no TLS: on the network it would be a way around that of gRPC.
    http_host = options.http_host or ("127.0.0.1" if options.tls else options.host)
    hosts = (http_host, options.host, options.metrics_host or options.host)
    return Addresses(*map(ports.resolve_host, hosts))


def _settled_ports(options: ServeOptions, addresses: Addresses) -> list[int]:
    wanted = (
        ("--http-port", addresses.http, options.http_port),
        ("--grpc-port", addresses.grpc, options.grpc_port),
        ("--metrics-port", addresses.metrics, options.metrics_port),
    )
    return ports.settle_ports(wanted)


def server_command(
    options: ServeOptions,
    binary: Path,
    repository: Path,
    workspace: Workspace,
    addresses: Addresses,
    numbers: list[int],
) -> list[str]:
    """The command line of tritonserver."""
    http_port, grpc_port, metrics_port = numbers
    return [
        str(binary),
        f"--model-repository={repository}",
        f"--backend-directory={workspace.backend_directory}",
        f"--http-address={addresses.http}",
        f"--grpc-address={addresses.grpc}",
        f"--metrics-address={addresses.metrics}",
        f"--http-port={http_port}",
        f"--grpc-port={grpc_port}",
        f"--metrics-port={metrics_port}",
        f"--exit-timeout-secs={options.exit_timeout_s}",
        *(
            ("--model-control-mode=explicit", "--load-model=*")
            if options.access.admin_token
            else ("--model-control-mode=none",)
        ),
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        f"--backend-config=python,shm-region-prefix-name={workspace.shm_prefix}",
        f"--backend-config=python,stub-timeout-seconds={_STUB_TIMEOUT_S}",
        f"--log-verbose={options.log_verbose}",
        *access_arguments(options.access),
        *(tls_arguments(options.tls) if options.tls else ()),
        *options.server_arguments,
    ]


def wait_ready(server: RunningServer, timeout_s: float, cancelled: Callable[[], bool] = lambda: False) -> None:
    """Returns when the server says that every model is ready; raises LaunchError when it ends or takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        if server.has_logged():
            server.conceal_secrets()
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
    server: RunningServer,
    models: Collection[str],
    options: ServeOptions,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Asks those of the models that have a canary; raises LaunchError when one does not answer as clients need."""
    # Imported here: the command line must start quickly, and this brings in the gRPC client.
    from oasr_client import canary
    from oasr_client.credentials import Credentials

    asked = [name for name in canary.MODELS if name in models]
    if not asked:
        return
    timeout_s = options.self_test_timeout_s
    credentials = Credentials(token=options.access.token or "")
    # With TLS over HTTP: the certificate is for the name that clients use, and theirs are not known here.
    url, protocol = (server.http_url, "http") if options.tls else (server.grpc_url, "grpc")
    outcome: list[canary.CanaryReport | Exception] = []

    def check() -> None:
        try:
            outcome.append(canary.check(url, protocol, timeout_s, models=asked, credentials=credentials))
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
