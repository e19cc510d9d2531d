"""`oasr check`: loads a checkpoint as a server would, tells what it is, and decodes a file with it."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

from oasr_client import audio
from oasr_client.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoint and the audio."""
    parser.add_argument("checkpoint", type=Path, metavar="DIR", help="a checkpoint directory")
    parser.add_argument("audio", type=Path, nargs="?", metavar="AUDIO", help="a file to transcribe with it")
    parser.add_argument("--max-sequences", type=int, default=128, metavar="N", help="streams to size the cache for")


def run(args: argparse.Namespace) -> int:
    """Prints the facts, and text and word times of the audio; 0 when the checkpoint can be served."""
    inspection = common.on_checkpoint("check", lambda module: module.inspect(args.checkpoint, args.max_sequences))
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    for fact in inspection.facts:
        table.add_row(fact.name, fact.value)
    console.print(table)
    if args.audio is not None:
        output = inspection.transcribe(audio.read(args.audio, inspection.engine.sample_rate))
        console.print(f"\n{output.text}", markup=False)
        for word in output.words or ():
            console.print(f"{word.start:8.2f} {word.end:8.2f}  {word.confidence:.2f}  {word.word}", markup=False)
    return 0
