"""`oasr quantize`: a checkpoint of any supported format as a native bundle of int8 weights."""

import argparse
from pathlib import Path

from oasr_client.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds where from, where to, and which layers."""
    parser.add_argument("source", type=Path, metavar="CHECKPOINT", help="a checkpoint directory")
    parser.add_argument("target", type=Path, metavar="OUT", help="a new directory")
    parser.add_argument("--scheme", default="int8_w8a8", help="default: %(default)s")
    parser.add_argument("--ignore", metavar="GLOB,...", help="modules that stay as they are, such as ctc.*")
    parser.add_argument(
        "--module-types",
        metavar="KIND,...",
        help="of linear, pointwise_conv, conv2d and head (default: all but head)",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the bundle; 0 when it is whole."""
    common.on_checkpoint(
        "quantize",
        lambda module: module.quantize(args.source, args.target, args.scheme, args.ignore, args.module_types),
    )
    print(f"wrote {args.target}")
    return 0
