"""The launcher of the real Triton server: `oasr serve`, and `running_server` for programs and tests."""

import argparse
import contextlib
import ipaddress
import logging
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from oasr_backend.server.access import CLOSED_PARTS, Access
from oasr_backend.server.compat import COMPAT_NAMES
from oasr_backend.server.environment import parse_setting
from oasr_backend.server.errors import LaunchError, StartCancelled
from oasr_backend.server.log import LogFollower
from oasr_backend.server.messages import show_messages, show_report_line, show_server_line
from oasr_backend.server.options import ADMIN_TOKEN_VARIABLE, ServeOptions
from oasr_backend.server.preflight import preflight
from oasr_backend.server.running import RunningServer, addresses_of, check_surroundings, start_server
from oasr_backend.server.tls import TlsFiles
from oasr_backend.utils.cores import divide_threads
from oasr_client.credentials import TOKEN_VARIABLE, check_token, read_token
from oasr_client.transport import DEFAULT_URLS

__all__ = [
    "Access",
    "LaunchError",
    "RunningServer",
    "ServeOptions",
    "TlsFiles",
    "add_arguments",
    "divide_threads",
    "run",
    "running_server",
]

_SHARED_MEMORY_WANTED = 256 << 20
_OWN_LOG_LIMIT = 32 << 20
_FORCED = 130

log = logging.getLogger("oasr.serve")


@contextlib.contextmanager
def running_server(
    checkpoint: Path | str | None = None,
    http_port: int = 0,
    grpc_port: int = 0,
    metrics_port: int = 0,
    host: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
    log_path: Path | str | None = None,
    **others: Any,
) -> Iterator[RunningServer]:
    """A server that is ready inside the `with` block and gone, with all it made, after it.

    Port 0 picks a free one. `environment` holds full variable names (OASR_DTYPE) and is stronger than os.environ;
    `others` are further fields of ServeOptions. Raises LaunchError when the server cannot be started.
    """
    options = ServeOptions(
        checkpoint=Path(checkpoint) if checkpoint is not None else None,
        http_port=http_port,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        host=host,
        environment=dict(environment or {}),
        log_path=Path(log_path) if log_path is not None else None,
        **others,
    )
    server = start_server(options)
    try:
        yield server
    finally:
        server.stop()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `oasr serve`."""
    default = ServeOptions()
    model = parser.add_argument_group("model")
    model.add_argument("--checkpoint", type=Path, metavar="DIR", help="WeNet checkpoint (default: the bundled one)")
    model.add_argument(
        "--model-version",
        type=_version,
        action="append",
        default=[],
        dest="versions",
        metavar="N=DIR",
        help="instead of --checkpoint: this checkpoint as version N; repeated, several side by side, each with its "
        "own memory. Clients that name no version get the highest",
    )
    model.add_argument("--models", type=_names, metavar="NAME,…", help="serve only these models of the repository")
    model.add_argument("--model-repository", type=Path, metavar="DIR", help="another Triton model repository")
    model.add_argument(
        "--compat-names",
        action="store_true",
        help=f"also answer as {' and '.join(COMPAT_NAMES)}, for clients of WeNet's Triton server",
    )
    model.add_argument("--num-threads", type=_positive, metavar="N", help="threads of all models (default: the cores)")
    model.add_argument("--max-sequences", type=_positive, metavar="N", help="live streams at once")
    model.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of the engine, as OASR_NAME does in the environment; files by their absolute path",
    )
    network = parser.add_argument_group("network")
    network.add_argument("--host", default=default.host, help="address to listen on (default: %(default)s)")
    network.add_argument(
        "--http-host", metavar="HOST", help="of HTTP alone (default: that of --host; with TLS 127.0.0.1)"
    )
    network.add_argument("--metrics-host", metavar="HOST", help="of metrics alone (default: that of --host)")
    for name in ("http", "grpc", "metrics"):
        port = getattr(default, f"{name}_port")
        network.add_argument(f"--{name}-port", type=_port, default=port, metavar="N", help=f"default {port}; 0 = any")
    network.add_argument(
        "--max-request-mib",
        type=_positive,
        metavar="N",
        help="largest body of an HTTP request (default: 1024, where this tritonserver can limit it)",
    )
    security = parser.add_argument_group("security")
    security.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help=f"clients must show the token in this file (default: {TOKEN_VARIABLE} of the environment, else none)",
    )
    security.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM certificate of the gRPC port")
    security.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM key of the certificate")
    security.add_argument(
        "--tls-client-ca", type=Path, metavar="FILE", help="clients must show a certificate of these authorities"
    )
    security.add_argument(
        "--allow",
        type=_names,
        default=(),
        metavar="PART,…",
        help=f"open parts of Triton's interface that are closed otherwise: {', '.join(CLOSED_PARTS)}",
    )
    security.add_argument(
        "--model-control",
        action="store_true",
        help="models may be loaded and unloaded by who shows the admin token; who may load models may run code",
    )
    security.add_argument(
        "--admin-token-file",
        type=Path,
        metavar="FILE",
        help=f"the token for --model-control (default: {ADMIN_TOKEN_VARIABLE} of the environment)",
    )
    process = parser.add_argument_group("process")
    process.add_argument(
        "--exit-timeout",
        type=_positive,
        default=default.exit_timeout_s,
        metavar="S",
        help="seconds that open streams get when the server is stopped (default: %(default)s)",
    )
    process.add_argument(
        "--ready-timeout",
        type=_positive,
        default=default.ready_timeout_s,
        metavar="S",
        help="seconds the models may take to load (default: %(default)g)",
    )
    process.add_argument("--no-self-test", action="store_true", help="do not send a test recognition before READY")
    process.add_argument("--log", type=Path, metavar="FILE", help="append the server's whole log to this file")
    process.add_argument("--log-verbose", type=int, default=0, metavar="N", help="tritonserver's --log-verbose")
    process.add_argument(
        "--server-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="a further argument for tritonserver, like --server-arg=--http-thread-count=16",
    )


def options_from(args: argparse.Namespace) -> ServeOptions:
    """The options that a parsed command line, and tokens in the environment, ask for. Raises LaunchError."""
    return ServeOptions(
        checkpoint=args.checkpoint,
        versions=_versions(args),
        http_port=args.http_port,
        grpc_port=args.grpc_port,
        metrics_port=args.metrics_port,
        host=args.host,
        http_host=args.http_host,
        metrics_host=args.metrics_host,
        access=_access(args, os.environ),
        tls=_tls(args),
        max_request_mib=args.max_request_mib,
        model_repository=args.model_repository,
        models=args.models,
        compat_names=args.compat_names,
        num_threads=args.num_threads,
        max_sequences=args.max_sequences,
        environment=dict(args.settings),
        exit_timeout_s=args.exit_timeout,
        ready_timeout_s=args.ready_timeout,
        self_test=not args.no_self_test,
        log_path=args.log,
        log_verbose=args.log_verbose,
        server_arguments=tuple(args.server_arg),
    )


def run(args: argparse.Namespace) -> int:
    """`oasr serve`: serves until Ctrl-C or SIGTERM (then 0; a second one kills: 130), or until the server ends (1).

    2 when the checkpoint or a setting is refused, before anything is started.
    """
    show_messages({**os.environ, **dict(args.settings)}.get("OASR_LOG_FORMAT", "text"))
    with _stop_signals() as stop:
        try:
            options = options_from(args)
            check_surroundings(options)
            for line in exposures(options):
                log.warning("%s", line)
            for title, asked in checkpoints_of(options):
                if title:
                    show_report_line(title)
                for line in preflight(asked, stop.asked):
                    show_report_line(line)
            _say("loading the models …")
            _warn_about_shared_memory()
            server = start_server(options, stop.asked)
        except StartCancelled:
            _say("stopped before it was ready")
            return 0
        except LaunchError as error:
            log.error("%s", error)
            return error.exit_status
        _say(f"ready; gRPC {server.grpc_url}, HTTP {server.http_url}, metrics http://{server.metrics_url}/metrics")
        if command := example(server.models, server.grpc_url):
            _say(f"try: {command}")
        if not server.conceal_secrets():
            log.warning("other users of this machine can read the token in the process list; see docs/security.md")
        _say("stop with Ctrl-C")
        try:
            return _watch(server, options, stop)
        finally:
            server.stop()


def example(models: Collection[str], grpc_url: str) -> str:
    """A command that a user may try on a server of these models; empty where none fits."""
    server = "" if grpc_url == DEFAULT_URLS["grpc"] else f" --server {grpc_url}"
    if "oasr_streaming" in models:
        return f"oasr stream talk.wav --realtime{server}"
    return f"oasr transcribe talk.wav{server}" if "oasr_transcribe" in models else ""


def checkpoints_of(options: ServeOptions) -> list[tuple[str, ServeOptions]]:
    """What is to be examined before the start, with a title where there are several."""
    if not options.versions:
        return [("", options)]
    return [
        (f"version {number}", replace(options, checkpoint=checkpoint, versions={}))
        for number, checkpoint in sorted(options.versions.items())
    ]


def exposures(options: ServeOptions) -> list[str]:
    """What lies open on the network, in a sentence each; nothing where the server listens to this machine alone."""
    addresses = addresses_of(options)
    lines = []
    if options.access.token is None:
        open_ports = [
            name
            for name, address in (("gRPC", addresses.grpc), ("HTTP", addresses.http))
            if not _is_loopback(address) and not (name == "gRPC" and options.tls and options.tls.client_ca)
        ]
        if open_ports:
            lines.append(f"anybody who reaches {' or '.join(open_ports)} may use this server; set a token")
    if not _is_loopback(addresses.http):
        lines.append("HTTP is not encrypted; put a proxy with TLS in front, or keep it at --http-host 127.0.0.1")
    if not _is_loopback(addresses.grpc) and options.tls is None:
        lines.append("gRPC is not encrypted; give --tls-cert and --tls-key, or put a proxy with TLS in front")
    return lines


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _access(args: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    if args.admin_token_file is not None and not args.model_control:
        raise LaunchError("--admin-token-file is given without --model-control; leave it out")
    admin_token = None
    if args.model_control:
        admin_token = _token(args.admin_token_file, environment.get(ADMIN_TOKEN_VARIABLE, ""))
        if admin_token is None:
            raise LaunchError(
                f"--model-control needs a token of its own: give --admin-token-file, or set {ADMIN_TOKEN_VARIABLE}"
            )
    return Access(_token(args.token_file, environment.get(TOKEN_VARIABLE, "")), admin_token, args.allow)


def _token(file: Path | None, text: str) -> str | None:
    """The token in the file, else `text`; none where both are missing or the text is empty."""
    try:
        if file is not None:
            return read_token(file)
        return check_token(text.strip()) if text.strip() else None
    except ValueError as error:
        raise LaunchError(str(error)) from None


def _versions(args: argparse.Namespace) -> dict[int, Path]:
    numbers = [number for number, _ in args.versions]
    if args.versions and args.checkpoint is not None:
        raise LaunchError("--checkpoint and --model-version exclude each other; give --model-version for each")
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise LaunchError(f"--model-version {twice[0]} is given twice; give each version a number of its own")
    return dict(args.versions)


def _tls(args: argparse.Namespace) -> TlsFiles | None:
    if args.tls_cert and args.tls_key:
        return TlsFiles(args.tls_cert, args.tls_key, args.tls_client_ca)
    if args.tls_cert or args.tls_key or args.tls_client_ca:
        raise LaunchError("TLS needs both --tls-cert and --tls-key")
    return None


def _watch(server: RunningServer, options: ServeOptions, stop: "_StopSignals") -> int:
    follower = LogFollower(
        server.log_path,
        gpu=any(os.path.exists(device) for device in ("/dev/nvidiactl", "/dev/dxg")),
        everything=options.log_verbose > 0,
        keep_below=None if options.log_path else _OWN_LOG_LIMIT,
    )
    while not stop.asked():
        ended = not server.is_alive()
        for line in follower.new_lines():
            show_server_line(line)
        if ended:
            if not server.lost_models:
                log.error("the server ended by itself (%s)", _cause(server.returncode))
            return 1
        time.sleep(0.25)
    _say(f"stopping; open streams get up to {options.exit_timeout_s} s, Ctrl-C again kills")
    server.stop(impatient=stop.forced)
    if stop.forced():
        _say("killed")
        return _FORCED
    _say("stopped" if server.returncode == 0 else "stopped; what was still open at the exit timeout is cut off")
    return 0


class _StopSignals:
    """Counts the requests to stop. The handler takes no lock, for the interrupted code may hold any."""

    def __init__(self) -> None:
        self._count = 0

    def asked(self) -> bool:
        return self._count > 0

    def forced(self) -> bool:
        return self._count > 1

    def handle(self, number: int, frame: FrameType | None) -> None:
        self._count += 1


@contextlib.contextmanager
def _stop_signals() -> Iterator[_StopSignals]:
    stop = _StopSignals()
    previous = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Ignored before means that somebody, like nohup, wants it so.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, stop.handle)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _warn_about_shared_memory() -> None:
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return
    size = status.f_frsize * status.f_blocks
    if size < _SHARED_MEMORY_WANTED:
        log.warning(
            "/dev/shm has only %d MiB, too little for many long clips at once; give the container --shm-size=1g",
            size >> 20,
        )


def _cause(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"exit status {returncode}"


def _say(text: str) -> None:
    log.info("%s", text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _version(text: str) -> tuple[int, Path]:
    number, _, directory = text.partition("=")
    if not number.isascii() or not number.isdigit() or number.startswith("0") or not directory:
        raise argparse.ArgumentTypeError(f"{text!r} is not N=DIR with a whole number N above 0")
    return int(number), Path(directory)


def _setting(text: str) -> tuple[str, str]:
    try:
        return parse_setting(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
