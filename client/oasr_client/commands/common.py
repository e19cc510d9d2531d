"""Arguments and checks that several commands share."""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from oasr_client import options, transport
from oasr_client.errors import CheckpointRefused, MissingExtra

Result = TypeVar("Result")


def add_server_arguments(parser: argparse.ArgumentParser, timeout_s: float) -> None:
    """Adds --server, --protocol and --timeout (seconds, default `timeout_s`)."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        type=address,
        help="address of the server (default: 127.0.0.1:8001 for grpc, 127.0.0.1:8000 for http)",
    )
    group.add_argument("--protocol", choices=sorted(transport.DEFAULT_URLS), default="grpc", help="default: grpc")
    group.add_argument("--timeout", metavar="SECONDS", type=positive, default=timeout_s, help=f"default: {timeout_s:g}")


def add_request_arguments(parser: argparse.ArgumentParser, concurrency: int) -> None:
    """Adds FILE..., --concurrency, --option and --json."""
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="audio file of any format and rate")
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=count,
        default=concurrency,
        help=f"files at a time (default: {concurrency})",
    )
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=option,
        help="option of the request, such as n_best=3; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per file, with the RESULT document")


def request_options(args: argparse.Namespace) -> dict[str, options.Parameter]:
    """The options of every --option; the last of a name counts."""
    merged: dict[str, options.Parameter] = {}
    for one in args.option:
        merged.update(one)
    return merged


def address(text: str) -> str:
    """argparse type: HOST:PORT."""
    try:
        return transport.check_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def option(text: str) -> dict[str, options.Parameter]:
    """argparse type: NAME=VALUE."""
    try:
        return options.parse([text])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive(text: str) -> float:
    """argparse type: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def count(text: str) -> int:
    """argparse type: a whole number above 0."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def backend(name: str, command: str) -> ModuleType:
    """The module `oasr_backend.<name>`, which `command` needs.

    Raises:
        MissingExtra: it, or a package that it imports, is not installed.
    """
    try:
        return importlib.import_module(f"oasr_backend.{name}")
    except ImportError as error:
        raise missing_extra(error, command) from error


def on_checkpoint(command: str, work: Callable[[ModuleType], Result]) -> Result:
    """What `work` returns of the module `oasr_backend.inspection`.

    Raises:
        MissingExtra: the engine is not installed.
        CheckpointRefused: the checkpoint cannot be used as it is.
    """
    errors = backend("errors", command)
    try:
        return work(backend("inspection", command))
    except (errors.CheckpointError, errors.ConfigError) as error:
        raise CheckpointRefused(str(error)) from error


def missing_extra(error: ImportError, command: str) -> MissingExtra:
    """The sentence for a package that `command` could not import."""
    lacking: Any = error.name or error
    return MissingExtra(
        f'`oasr {command}` needs the package {lacking}, which cannot be imported: pip install "oasr-triton[server]"'
    )
