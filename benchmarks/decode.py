"""What decoding costs beside the encoder: 32 streams, 16 frames a step, vocabulary 5,000.

    python -m benchmarks.decode --json FILE [--checkpoint DIR]

The encoder step is that of a random 12 x 256 model (4 chunks of history), the scores are random with blanks as in
speech: most frames are blank, the rest peak on a few tokens. Arms are interleaved; times are medians of one step.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.streams import LockstepStreams, streaming_engine
from oasr_backend.decode.base import DecodeSetup, DecodeStrategy, build_strategy, strategy_options
from oasr_backend.decode.scores import score_frames
from oasr_backend.utils.cores import available_cores

_FRAMES, _VOCABULARY = 16, 5000
_METHODS: dict[str, tuple[str, dict[str, object]]] = {
    "greedy": ("ctc_greedy", {}),
    "beam 10": ("ctc_prefix_beam", {"beam_size": 10}),
    "beam 10, no gate": ("ctc_prefix_beam", {"beam_size": 10, "blank_threshold": 1.0}),
}


def speech_like(streams: int, steps: int, seed: int = 0) -> list[torch.Tensor]:
    """Logits [streams, frames, vocabulary] of steps: three of four frames are blank, the others have a few peaks."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(steps):
        logits = torch.randn(streams, _FRAMES, _VOCABULARY, generator=generator)
        spoken = torch.rand(streams, _FRAMES, generator=generator) < 0.25
        peaks = torch.randint(1, _VOCABULARY, (streams, _FRAMES, 4), generator=generator)
        heights = 12.0 + 2.0 * torch.randn(streams, _FRAMES, 4, generator=generator)
        logits.scatter_(2, peaks, torch.where(spoken[..., None], heights, torch.zeros(())))
        logits[..., 0] = torch.where(spoken, 10.0, 16.0)
        batches.append(logits)
    return batches


def decoding(strategy: DecodeStrategy, batches: list[torch.Tensor], streams: int) -> Callable[[int], None]:
    """One step: from logits to every stream's best hypothesis, top-k and log-sum-exp among it."""
    sessions = [strategy.open() for _ in range(streams)]
    hidden = torch.zeros(0)

    def step(turn: int) -> None:
        scores = score_frames(batches[turn % len(batches)], hidden, strategy.needs, 0)
        strategy.advance(sessions, scores, [_FRAMES] * streams)
        for session in sessions:
            strategy.best(session)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, default=Path(tempfile.gettempdir()) / "oasr-12x256")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    streams = arguments.streams
    engine = streaming_engine(arguments.checkpoint, arguments.dtype, available_cores(), streams, left_chunks=4)
    lockstep = LockstepStreams(engine, streams)
    batches = speech_like(streams, 8)
    # Features to greedy decoding, which is no part worth mentioning of it.
    arms: dict[str, Callable[[int], object]] = {"encoder step": lambda turn: lockstep.step()}
    for name, (method, options) in _METHODS.items():
        setup = DecodeSetup(0, _VOCABULARY, strategy_options(method, options))
        arms[name] = decoding(build_strategy(method, setup), batches, streams)
    times: dict[str, list[float]] = {name: [] for name in arms}
    with torch.inference_mode():
        for turn in range(arguments.steps + 3):
            for name, step in arms.items():
                started = time.perf_counter()
                step(turn)
                # The first turns build kernels and fill the history.
                if turn >= 3:
                    times[name].append(1000 * (time.perf_counter() - started))
    table = Table("arm", "median ms", "p99 ms", "share of the encoder step")
    base = float(np.median(times["encoder step"]))
    ratios = {}
    for name, values in times.items():
        ratios[f"{name} / encoder step"] = float(np.median(values)) / base
        table.add_row(
            name,
            f"{np.median(values):.1f}",
            f"{np.percentile(values, 99):.1f}",
            f"{100 * np.median(values) / base:.1f} %",
        )
    Console().print(table)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    arguments.json.write_text(json.dumps({"median_ms": medians, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
