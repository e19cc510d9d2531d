"""`oasr convert`: a checkpoint of any supported format as a native bundle."""

import argparse
from pathlib import Path

from oasr_client.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where from and where to."""
    parser.add_argument("source", type=Path, metavar="SRC", help="a checkpoint directory")
    parser.add_argument("target", type=Path, metavar="DST", help="a new directory")


def run(args: argparse.Namespace) -> int:
    """Writes the bundle; 0 when it is whole."""
    common.on_checkpoint("convert", lambda module: module.convert(args.source, args.target))
    print(f"wrote {args.target}")
    return 0
