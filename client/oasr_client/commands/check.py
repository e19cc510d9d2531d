"""`oasr check`: loads a checkpoint as a server would, tells what it is, and decodes files with it in both ways."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oasr_client import audio
from oasr_client.commands import common
from oasr_client.errors import OasrError

_ENGINE = ("device", "dtype", "num_threads", "chunk_size", "num_left_chunks", "quantization")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoint, the audio, how to decode and how to tell."""
    parser.add_argument("checkpoint", metavar="DIR", help="a checkpoint directory")
    parser.add_argument("audio", type=Path, nargs="*", metavar="AUDIO", help="a file to decode, whole and as a stream")
    parser.add_argument("--json", action="store_true", help="print one JSON object: checkpoint, services, files")
    parser.add_argument("--quiet", action="store_true", help="tell of the checkpoint in one line, no word times")
    common.add_option_arguments(parser)
    engine = parser.add_argument_group("engine (as serve --set)")
    engine.add_argument("--device", help="auto (default), cpu, cuda or cuda:N")
    engine.add_argument("--dtype", help="auto (default), float32, bfloat16 or float16")
    engine.add_argument("--num-threads", type=common.count, metavar="N", help="default: the cores")
    engine.add_argument("--chunk-size", type=common.count, metavar="FRAMES", help="encoder frames of a step (16)")
    engine.add_argument("--num-left-chunks", type=int, metavar="N", help="chunks of history to see (-1: all)")
    engine.add_argument("--quantization", metavar="SCHEME", help="int8_w8a8")
    engine.add_argument(
        "--max-sequences", type=common.count, default=128, metavar="N", help="streams to size the cache for (128)"
    )


def run(args: argparse.Namespace) -> int:
    """0 when the checkpoint can be served and every file was decoded, 1 when a file was not."""
    # Before the engine's library is imported, which reads it once.
    common.backend("server.environment", "check").settle_waiting(os.environ)
    settings = {name: value for name in _ENGINE if (value := getattr(args, name)) is not None}
    if args.decode_method is not None:
        settings["decode_method"] = args.decode_method
    inspection = common.backend("inspection", "check")
    check = common.on_checkpoint(
        "check",
        lambda module: module.open_check(args.checkpoint, max_batch_size=args.max_sequences, **settings),
    )
    document: dict[str, Any] = {
        "checkpoint": asdict(check.checkpoint),
        "services": [asdict(service) for service in check.services],
        "files": [],
    }
    if args.quiet and not args.json:
        print(inspection.summary(check.checkpoint, check.services))
    elif not args.json:
        print("\n".join(inspection.lines(inspection.report(check.checkpoint, check.services))))
    failed = 0
    if args.audio:
        check.warm_up()
    for path in args.audio:
        try:
            trial = _decoded(inspection, check, path, common.request_options(args))
        except OasrError as error:
            failed += 1
            print(f"oasr: {error}", file=sys.stderr)
            document["files"].append({"file": str(path), "error": str(error)})
            continue
        document["files"].append({"file": str(path), **_as_document(trial)})
        if not args.json:
            _print_trial(path, trial, words=args.words or not args.quiet)
    if args.json:
        print(json.dumps(document, ensure_ascii=False, indent=2))
    return 1 if failed else 0


def _decoded(inspection: Any, check: Any, path: Path, options: dict[str, Any]) -> Any:
    samples = audio.read(path, check.engine.sample_rate)
    try:
        return check.decode(samples, options)
    except (ValueError, TypeError, inspection.TrialError) as error:
        raise OasrError(f"{path}: {error}") from error


def _print_trial(path: Path, trial: Any, words: bool) -> None:
    print(f"\n{path}: {trial.audio_seconds:.2f} s")
    for name, decoded in _passes(trial):
        print(f"  {name:<9}  {decoded.seconds:.2f} s, RTF {decoded.seconds / trial.audio_seconds:.3f}  {decoded.text}")
    for one in trial.differences:
        print(f"  they differ: offline {one.left!r}, streaming {one.right!r}")
    if trial.streaming is not None and not trial.differences:
        print("  the same text both ways")
    for warning in trial.offline.warnings:
        print(f"  warning: {warning}")
    for word in trial.offline.words if words else ():
        print(f"  {word.start:8.2f} {word.end:8.2f}  {word.confidence:.2f}  {word.word}")


def _passes(trial: Any) -> list[tuple[str, Any]]:
    both = [("offline", trial.offline), ("streaming", trial.streaming)]
    return [(name, decoded) for name, decoded in both if decoded is not None]


def _as_document(trial: Any) -> dict[str, Any]:
    passes = {
        name: {**asdict(decoded), "rtf": decoded.seconds / trial.audio_seconds} for name, decoded in _passes(trial)
    }
    return {
        "audio_seconds": trial.audio_seconds,
        **passes,
        "differences": [{"offline": one.left, "streaming": one.right} for one in trial.differences],
    }
