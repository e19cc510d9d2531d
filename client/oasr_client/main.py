"""The `oasr` command."""

import argparse
import importlib
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from oasr_client import __version__
from oasr_client.errors import OasrError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

COMMANDS = {
    "stream": "stream audio files and show the text as it comes",
    "transcribe": "transcribe whole audio files",
    "serve": "start the server",
    "check": "load a checkpoint and tell what it is, without a server",
    "convert": "write a checkpoint as a native bundle",
    "quantize": "write a checkpoint as a native bundle of int8 weights",
    "demo": "start a server, transcribe the bundled clips, and stop it",
    "canary": "check a running server by asking it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: the process's own) and returns the exit status.

    0 is success, 1 a failure told in one line on standard error, 2 a wrong command line or a checkpoint that cannot be
    served, 130 an interrupt.
    """
    # The channel reports its failures as errors; its own log would only repeat them.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except OasrError as error:
        print(f"oasr: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # The reader of our output has gone; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("oasr: interrupted", file=sys.stderr)
        _leave_if_threads_wait()
        return EXIT_INTERRUPTED


def _run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="oasr", description="Speech recognition on NVIDIA Triton.")
    parser.add_argument("--version", action="version", version=f"oasr {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    module: Any = None
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == chosen:
            # Only the chosen command is imported: `oasr serve` needs packages that the others do not.
            module = importlib.import_module(f"oasr_client.commands.{name}")
            module.add_arguments(subparser)
    args = parser.parse_args(arguments)
    return int(module.run(args))


def _leave_if_threads_wait() -> None:
    waiting = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if any(not thread.daemon for thread in waiting):
        # Python would wait at exit for requests still in flight.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
