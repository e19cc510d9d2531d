"""Arguments and checks that several commands share."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from oasr_client import accuracy, audio, options, transport
from oasr_client.credentials import Credentials, from_command
from oasr_client.errors import CheckpointRefused, MissingExtra, OasrError, UsageError
from oasr_client.inputs import Utterance
from oasr_client.summary import Summary

Result = TypeVar("Result")

_CERTIFICATES = {
    "ca": "PEM file of the authorities to trust instead of the usual ones",
    "cert": "PEM file of the own certificate, where the server asks for one",
    "key": "PEM file of its key",
}


def add_server_arguments(parser: argparse.ArgumentParser, timeout_s: float, with_version: bool = False) -> None:
    """Adds --server, --protocol, --timeout (seconds, default `timeout_s`), token and TLS, and --model-version."""
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="HOST:PORT",
        type=address,
        help="address of the server (default: 127.0.0.1:8001 for grpc, 127.0.0.1:8000 for http)",
    )
    if with_version:
        group.add_argument(
            "--model-version",
            metavar="N",
            type=count,
            help="the version of the model, where the server has several (default: the highest)",
        )
    group.add_argument("--protocol", choices=sorted(transport.DEFAULT_URLS), default="grpc", help="default: grpc")
    group.add_argument("--timeout", metavar="SECONDS", type=positive, default=timeout_s, help=f"default: {timeout_s:g}")
    add_credential_arguments(group.add_argument)


def add_credential_arguments(add: Callable[..., Any]) -> None:
    """Adds token and TLS by `add`, the `add_argument` of a parser or a group."""
    add("--tls", action="store_true", help="encrypt, and check the server's certificate (OASR_TLS=1)")
    for name, what in _CERTIFICATES.items():
        add(f"--{name}", metavar="FILE", type=Path, help=f"{what} (OASR_TLS_{name.upper()})")
    add("--token-file", metavar="FILE", type=Path, help="file of the server's token (OASR_TOKEN: it)")


def credentials(args: argparse.Namespace) -> Credentials:
    """Token and TLS of a command line with `add_credential_arguments`. Raises UsageError."""
    given = {name: getattr(args, name) for name in ("tls", *_CERTIFICATES, "token_file")}
    return from_command(os.environ, **given)


def add_input_arguments(parser: argparse.ArgumentParser, concurrency: int, nargs: str = "+") -> None:
    """Adds INPUT... and --concurrency."""
    parser.add_argument(
        "inputs",
        metavar="INPUT",
        nargs=nargs,
        help="audio file, folder, glob in quotes, or manifest: wav.scp, NeMo JSON lines, Hugging Face metadata",
    )
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=count,
        default=concurrency,
        help=f"files at a time (default: {concurrency})",
    )


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a request that streams and clips share, and --option."""
    group = parser.add_argument_group("recognition")
    group.add_argument("--decode-method", metavar="NAME", help="ctc_greedy, ctc_prefix_beam or attention_rescoring")
    group.add_argument("--n-best", metavar="N", type=count, help="hypotheses in RESULT; needs a beam")
    group.add_argument("--words", action="store_true", help="words with times and confidences in RESULT")
    group.add_argument(
        "--hotword", metavar="PHRASE", action="append", default=[], help="a phrase to listen for; may be repeated"
    )
    group.add_argument("--hotword-score", metavar="X", type=positive, help="what a token of a phrase adds")
    group.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=option,
        help="any option of the request, such as endpoint_silence_ms=500; may be repeated",
    )


def add_output_arguments(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """Adds --format, --json, --normalize and --summary."""
    group = parser.add_argument_group("output")
    group.add_argument("--format", choices=formats, default="text", help="default: text")
    group.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    group.add_argument(
        "--normalize",
        choices=accuracy.NORMALIZERS,
        default="basic",
        help="how texts are compared for error rates: basic ignores case and punctuation (default), none nothing",
    )
    group.add_argument("--summary", metavar="FILE", type=Path, help="write the figures of the run as JSON")


def request_options(args: argparse.Namespace, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options that a command line asks for; `more` are those of a command's own arguments.

    Raises:
        UsageError: one is given twice with different values.
    """
    given: dict[str, Any] = {
        "decode_method": args.decode_method,
        "n_best": args.n_best,
        "word_timestamps": args.words or None,
        "hotwords": args.hotword or None,
        "hotword_score": args.hotword_score,
        **(more or {}),
    }
    merged = {name: value for name, value in given.items() if value is not None}
    for one in args.option:
        for name, value in one.items():
            if merged.setdefault(name, value) != value:
                raise UsageError(f"option {name} is given twice, as {merged[name]!r} and as {value!r}: give it once")
    return merged


def show_summary(summary: Summary, path: Path | None) -> None:
    """Prints the figures of a run on standard error where they say more than its output, and writes them to `path`.

    Raises:
        UsageError: the file cannot be written.
    """
    if summary.files > 1 or summary.rates or summary.note:
        for line in summary.lines:
            print(line, file=sys.stderr)
    if path is not None:
        write(path, json.dumps(summary.document, ensure_ascii=False, indent=2) + "\n")


def write(path: Path, text: str) -> None:
    """Writes a file, with the folders that it lies in. Raises UsageError where that is impossible."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def samples_of(utterance: Utterance) -> audio.Samples:
    """The samples of an utterance, 16 kHz mono. Raises AudioError."""
    return audio.read(utterance.path, offset_s=utterance.offset_s, duration_s=utterance.duration_s)


def error_document(error: OasrError) -> dict[str, str]:
    """An error in JSON output."""
    return {"code": error.code or error.status, "message": str(error)}


def address(text: str) -> str:
    """argparse type: HOST:PORT."""
    try:
        return transport.check_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def addresses(text: str) -> tuple[str, ...]:
    """argparse type: HOST:PORT,HOST:PORT,..., all different."""
    found = tuple(address(part) for part in text.split(",") if part.strip())
    if not found or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"{text!r} does not name one or more different servers, as HOST:PORT,HOST:PORT"
        )
    return found


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
