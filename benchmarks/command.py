"""What the commands have in common: their options, and the wait policy of their threads."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import torch

from oasr_backend.config.machine import dtype_on
from oasr_backend.server.environment import wait_policy
from oasr_backend.utils.cores import available_cores
from oasr_backend.utils.host import has_bfloat16_units

RANDOM_CHECKPOINT = Path(tempfile.gettempdir()) / "oasr-12x256"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """With the options that every command has; the model is the random 12 x 256 one unless another is named."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, default=RANDOM_CHECKPOINT, help="made when it is not there")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=available_cores())
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, in a process whose threads wait as those of a server do, with `--threads` of them."""
    arguments = parser.parse_args()
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        # libgomp reads it once, when torch is loaded.
        os.environ.update(wait_policy(has_bfloat16_units()))
        os.execv(sys.executable, sys.orig_argv)
    torch.set_num_threads(arguments.threads)
    return arguments


def dtype_of(arguments: argparse.Namespace) -> torch.dtype:
    """The dtype that the engine takes on this processor."""
    return dtype_on(torch.device("cpu"), arguments.dtype)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
