"""Servers as the benchmarks start them."""

import argparse
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks import environment
from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import assets_dir
from oasr_client import audio
from oasr_client.load import recordings


def settings_of(arm: str) -> dict[str, str]:
    """`NAME=VALUE,...` as environment variables: those of the process as they are, any other as OASR_NAME."""
    pairs = [part.partition("=") for part in arm.split(",") if part]
    return {name if "_" in name and name.isupper() else f"OASR_{name.upper()}": value for name, _, value in pairs}


@contextlib.contextmanager
def serving(
    models: tuple[str, ...],
    checkpoint: Path,
    arguments: argparse.Namespace,
    settings: Mapping[str, str],
    self_test: bool = True,
) -> Iterator[RunningServer]:
    """A server with the command's dtype and threads under `settings`, which are whole names of variables; its threads
    wait as the launcher has it, unless these say otherwise.
    """
    ours = {name: value for name, value in settings.items() if name.startswith("OASR_")}
    foreign = {name: value for name, value in settings.items() if name not in ours}
    server = running_server(
        checkpoint=checkpoint,
        models=models,
        num_threads=arguments.threads,
        environment={"OASR_DTYPE": arguments.dtype, **ours},
        self_test=self_test,
    )
    with environment.only(foreign), server as running:
        yield running


def recording(seconds: float, variant: int = 0) -> np.ndarray:
    """The bundled clips, repeated: [samples] int16. Variants begin with different clips."""
    clips = [audio.read(path) for path in sorted((assets_dir() / "clips").glob("*.flac"))]
    return recordings.recording(clips, seconds, variant)
