"""What decoding costs beside the encoder: 32 streams, 16 frames a step, vocabulary 5,000.

    python -m benchmarks.decode --json FILE [--checkpoint DIR]

The encoder step is that of a random 12 x 256 model (4 chunks of history), the scores are random with blanks as in
speech: most frames are blank, the rest peak on a few tokens. Arms are interleaved; times are medians of one step.
"""

import itertools
from collections.abc import Callable

import torch

from benchmarks import command
from benchmarks.reporting import Report, publish
from benchmarks.streams import LockstepStreams, streaming_engine
from benchmarks.timing import interleaved, timed
from oasr_backend.decode.base import DecodeSetup, DecodeStrategy, build_strategy, strategy_options
from oasr_backend.decode.scores import score_frames

_FRAMES, _VOCABULARY = 16, 5000
_LEFT_CHUNKS = 4
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


def decoding(strategy: DecodeStrategy, batches: list[torch.Tensor], streams: int) -> Callable[[], None]:
    """One step: from logits to every stream's best hypothesis, top-k and log-sum-exp among it."""
    sessions = [strategy.open() for _ in range(streams)]
    hidden = torch.zeros(0)
    turns = itertools.cycle(batches)

    def step() -> None:
        scores = score_frames(next(turns), hidden, strategy.needs, 0)
        strategy.advance(sessions, scores, [_FRAMES] * streams)
        for session in sessions:
            strategy.best(session)

    return step


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    arguments = command.parse(parser)
    streams = arguments.streams
    engine = streaming_engine(arguments.checkpoint, arguments.dtype, arguments.threads, streams, _LEFT_CHUNKS)
    # Features to greedy decoding, which is no part worth mentioning of it.
    arms = {"encoder step": LockstepStreams(engine, streams).step}
    batches = speech_like(streams, 8)
    for name, (method, options) in _METHODS.items():
        setup = DecodeSetup(0, _VOCABULARY, strategy_options(method, options))
        arms[name] = timed(decoding(build_strategy(method, setup), batches, streams))
    with torch.inference_mode():
        # The first rounds build kernels and fill the history.
        times = interleaved(arms, arguments.steps, warm_up=_LEFT_CHUNKS + 1)
    shares = {name: one.median / times["encoder step"].median for name, one in times.items()}
    publish(
        Report(
            benchmark="decode",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={"streams": streams, "frames": _FRAMES, "vocabulary": _VOCABULARY, "steps": arguments.steps},
            tables={
                f"{streams} streams": [
                    {"arm": name, **one.columns(), "share of the encoder step": shares[name]}
                    for name, one in times.items()
                ]
            },
            ratios={f"{name} / encoder step": share for name, share in shares.items()},
        ),
        arguments.json,
    )


if __name__ == "__main__":
    main()
