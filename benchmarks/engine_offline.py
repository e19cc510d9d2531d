"""Clips of 2 to 15 s through the engine: throughput, padding, packed rows against padded batches, and the ONNX peer.

    python -m benchmarks.engine_offline --json FILE [--clips 48] [--rounds 3] [--no-onnx] [--peer-batches 1 4 8]
        [--settings '{"max_batch_size": 8}']

All clips are handed in at once, in a random order of lengths. The peer is a full-utterance export whose batches are
cut from the clips sorted by length, in one process with all threads, or in as many processes as threads with one each;
it gets features that are ready and gives log-probabilities, where the engine takes samples and gives texts. Arms take
turns; each has processes of its own that sleep in between.
"""

import contextlib
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks import command
from benchmarks.clips import by_length, mixed_clips, padding_factor, total_seconds
from benchmarks.make_checkpoint import make_checkpoint
from benchmarks.peer_arm import PRECISIONS, PeerArm, peer_arms
from benchmarks.reporting import Report, Row, publish
from benchmarks.timing import Times
from benchmarks.workers import Worker, all_at_once
from oasr_backend.engine import ASREngine, EngineConfig


@dataclass(frozen=True)
class OfflineTurn:
    """All clips once: the seconds it took, and frames with padding per frame without."""

    seconds: float
    padding: float


class OfflineEngine:
    """The engine in a process of its own."""

    def __init__(
        self,
        checkpoint: Path,
        dtype: str,
        threads: int,
        clips: int,
        packed: bool,
        settings: Mapping[str, object] = MappingProxyType({}),
    ):
        values = {
            "ckpt_dir": str(checkpoint),
            "dtype": dtype,
            "num_threads": threads,
            "service_mode": "offline",
            "enable_sequence_packing": packed,
        }
        self._engine = ASREngine(EngineConfig.from_mapping({**values, **settings}))
        self._clips = mixed_clips(clips)
        self._packed = packed

    def turn(self) -> OfflineTurn:
        started = time.perf_counter()
        for clip in self._clips:
            self._engine.add_request(clip, streaming=False)
        # What a step gives is one batch.
        batches: list[list[int]] = []
        lengths: list[int] = []
        while self._engine.has_work:
            outputs = self._engine.step()
            if failed := [output.error for output in outputs if output.error is not None]:
                raise RuntimeError(f"a clip failed: {failed[0]}")
            batches.append(list(range(len(lengths), len(lengths) + len(outputs))))
            lengths += [round(100 * output.audio_seconds) for output in outputs]
        seconds = time.perf_counter() - started
        return OfflineTurn(seconds, 1.0 if self._packed else padding_factor(lengths, [one for one in batches if one]))


class PeerClips:
    """A process' share of the clips, for sessions that are opened when first asked for."""

    def __init__(self, checkpoint: Path, paths: Mapping[str, Path], clips: int, place: int):
        # Here, so that the engine can be measured where there is no onnxruntime.
        from benchmarks.peer_features import features_of
        from benchmarks.peer_session import ClipSession

        self._open = lambda precision, threads: ClipSession(paths[precision], threads)
        self._sessions: dict[tuple[str, int], ClipSession] = {}
        self._features, geometry = features_of(checkpoint, mixed_clips(clips))
        self._frames = [geometry.frames_out(len(one)) for one in self._features]
        self._place = place

    def turn(self, arm: PeerArm) -> float:
        """Seconds of this process' batches."""
        from benchmarks.peer_features import padded

        session = self._sessions.get((arm.precision, arm.threads))
        if session is None:
            session = self._sessions[arm.precision, arm.threads] = self._open(arm.precision, arm.threads)
            session.call(padded(self._features[:1]), self._frames[:1])
        batches = by_length(self._frames, arm.batch)[self._place :: arm.processes]
        ready = [
            (padded([self._features[index] for index in batch]), [self._frames[index] for index in batch])
            for batch in batches
        ]
        return sum(session.turn(ready).steps)


@dataclass(frozen=True)
class Outcome:
    """One arm: seconds of every round, and its padding."""

    name: str
    seconds: tuple[float, ...]
    padding: float

    def times_real_time(self, audio_s: float) -> float:
        return audio_s / Times(self.seconds).median


def measure(
    engines: Mapping[str, Worker], peers: Sequence[Worker], arms: Sequence[PeerArm], rounds: int, frames: Sequence[int]
) -> tuple[list[Outcome], dict[PeerArm, Outcome]]:
    """Outcomes of the engines and of the peer's arms; the first round warms up and is left out."""
    of_engines: dict[str, list[OfflineTurn]] = {name: [] for name in engines}
    of_peers: dict[PeerArm, list[float]] = {arm: [] for arm in arms}
    for turn in range(rounds + 1):
        for name, engine in engines.items():
            taken = engine.call("turn")
            of_engines[name] += [taken] if turn else []
        for arm in arms:
            # Together they are done when the last is.
            longest = max(all_at_once(peers[: arm.processes], "turn", arm))
            of_peers[arm] += [longest] if turn else []
    return [
        Outcome(name, tuple(turn.seconds for turn in turns), max(turn.padding for turn in turns))
        for name, turns in of_engines.items()
    ], {
        arm: Outcome(f"onnx {arm.name}", tuple(seconds), padding_factor(frames, by_length(frames, arm.batch)))
        for arm, seconds in of_peers.items()
    }


def export(checkpoint: Path, directory: Path) -> dict[str, Path]:
    """The peer's files. Raises RuntimeError where the float32 one does not compute what the engine computes."""
    from benchmarks.peer_check import TOLERANCE, clip_log_probs, compare, engine_log_probs
    from benchmarks.peer_export import export_clips
    from benchmarks.peer_session import ClipSession

    paths = {precision: export_clips(checkpoint, directory, precision) for precision in PRECISIONS}
    expected = engine_log_probs(checkpoint, -1, streaming=False)
    agreement = compare(clip_log_probs(ClipSession(paths["float32"], 1), checkpoint), expected)
    if agreement.difference > TOLERANCE:
        raise RuntimeError(f"the peer differs from the engine by {agreement.difference} in a log-probability")
    return paths


def _layouts(threads: int) -> tuple[tuple[int, int], ...]:
    return (1, threads), (threads, 1)


def main() -> None:
    parser = command.make_parser(__doc__)
    parser.add_argument("--clips", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-onnx", action="store_true")
    parser.add_argument("--settings", type=json.loads, default={}, help="further fields of EngineConfig, as JSON")
    parser.add_argument("--peer-batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--directory", type=Path, help="where the ONNX files are kept; default: nowhere")
    arguments = command.parse(parser)
    checkpoint = make_checkpoint(arguments.checkpoint)
    clips = mixed_clips(arguments.clips)
    frames = [100 * len(clip) // 16_000 for clip in clips]
    arms = [] if arguments.no_onnx else peer_arms(arguments.peer_batches, _layouts(arguments.threads))
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        shared = (checkpoint, arguments.dtype, arguments.threads, arguments.clips)
        engines = {
            "engine, padded": stack.enter_context(Worker(OfflineEngine, *shared, False, arguments.settings)),
            "engine, packed": stack.enter_context(Worker(OfflineEngine, *shared, True, arguments.settings)),
        }
        peers = []
        if arms:
            paths = export(checkpoint, directory)
            peers = [
                stack.enter_context(Worker(PeerClips, checkpoint, paths, arguments.clips, place))
                for place in range(arguments.threads)
            ]
        (as_padded, as_packed), of_peers = measure(engines, peers, arms, arguments.rounds, frames)

    audio_s = total_seconds(clips)
    best = max(one.times_real_time(audio_s) for one in (as_padded, as_packed))
    ratios = {
        "target4_padding_factor": as_padded.padding,
        "target4_packed_over_padded_throughput": as_packed.times_real_time(audio_s)
        / as_padded.times_real_time(audio_s),
    }
    if of_peers:
        by_precision = {
            precision: max(one.times_real_time(audio_s) for arm, one in of_peers.items() if arm.precision == precision)
            for precision in PRECISIONS
        }
        ratios["target4_throughput_over_onnx"] = best / by_precision["float32"]
        ratios["throughput_over_onnx_int8"] = best / by_precision["int8"]
    publish(
        Report(
            benchmark="engine_offline",
            dtype=command.dtype_name(command.dtype_of(arguments)),
            threads=arguments.threads,
            settings={
                "clips": arguments.clips,
                "audio_s": audio_s,
                "rounds": arguments.rounds,
                "engine": arguments.settings,
                "peer": "none" if arguments.no_onnx else "full utterances, sorted by length, float32 and dynamic int8",
            },
            tables={
                f"{arguments.clips} clips, {audio_s:.0f} s": [
                    _row(one, audio_s) for one in (as_padded, as_packed, *of_peers.values())
                ]
            },
            ratios=ratios,
            notes=["The engine's faster arm stands against the peer's fastest of the same table."],
        ),
        arguments.json,
    )


def _row(outcome: Outcome, audio_s: float) -> Row:
    times = Times(outcome.seconds)
    return {
        "arm": outcome.name,
        "x real time": outcome.times_real_time(audio_s),
        "median s": times.median,
        "longest s": times.maximum,
        "padding": outcome.padding,
    }


if __name__ == "__main__":
    main()
