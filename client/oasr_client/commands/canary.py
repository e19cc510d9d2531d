"""`oasr canary`: the health check for containers and load balancers."""

import argparse
import sys

from oasr_client import canary
from oasr_client.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server's address and the models to ask."""
    common.add_server_arguments(parser, timeout_s=10.0)
    parser.add_argument(
        "--models", metavar="MODEL", nargs="+", choices=canary.MODELS, default=canary.MODELS, help="default: all"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one line; 0 when every check passed."""
    report = canary.check(
        args.server, args.protocol, args.timeout, models=args.models, credentials=common.credentials(args)
    )
    if report.ok:
        print(report.line)
        return 0
    print(f"oasr: {report.line}", file=sys.stderr)
    return 1
