"""`oasr stream`: plays audio files into streams and shows the text as it comes."""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from rich.console import Console

from oasr_client import audio, transport
from oasr_client.commands import common
from oasr_client.display import Display, failure_line, milliseconds, speed
from oasr_client.errors import OasrError
from oasr_client.playback import OnPartial, Playback, play
from oasr_client.streaming import StreamingClient

_GRACE_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the files, the pace and the server's address."""
    common.add_request_arguments(parser, concurrency=1)
    parser.add_argument(
        "--chunk-ms", metavar="MS", type=common.positive, default=640.0, help="audio per request (default: 640)"
    )
    parser.add_argument("--realtime", action="store_true", help="send at the pace of a microphone")
    common.add_server_arguments(parser, timeout_s=transport.DEFAULT_TIMEOUT_S)


def run(args: argparse.Namespace) -> int:
    """Streams every file; 1 if one of them failed."""
    options = common.request_options(args)
    stop = threading.Event()
    display = Display(Console(highlight=False), partials=not args.json)
    failed = 0
    audio_s = 0.0
    begin = time.perf_counter()
    with StreamingClient(args.server, args.protocol, args.timeout) as client, display:

        def one(path: Path, on_partial: OnPartial) -> Playback:
            return play(
                client,
                audio.read(path),
                chunk_ms=args.chunk_ms,
                realtime=args.realtime,
                options=options,
                want_result=args.json,
                on_partial=on_partial,
                stop=stop,
            )

        for path, outcome in in_order(args.files, one, display, args.concurrency, stop):
            if isinstance(outcome, OasrError):
                failed += 1
            else:
                audio_s += outcome.audio_s
            if args.json:
                print(json.dumps(as_json(str(path), outcome), ensure_ascii=False), flush=True)
            elif isinstance(outcome, OasrError):
                print(failure_line(str(path), outcome), file=sys.stderr)
            else:
                show(display, str(path), outcome)
    if len(args.files) > 1 and not args.json:
        wall_s = time.perf_counter() - begin
        display.print(
            f"{len(args.files)} files, {failed} failed: {audio_s:.1f} s of audio in {wall_s:.1f} s, "
            f"real-time factor {speed(wall_s / audio_s if audio_s else 0.0)}"
        )
    return 1 if failed else 0


def in_order(
    paths: Sequence[Path],
    work: Callable[[Path, OnPartial], Playback],
    display: Display,
    concurrency: int,
    stop: threading.Event,
) -> Iterator[tuple[Path, Playback | OasrError]]:
    """Runs `work` on every path, `concurrency` at a time; yields outcomes in the order of `paths`.

    When the caller leaves or is interrupted, `stop` is set and running work is given 2 s to end its streams.
    """

    def guarded(path: Path) -> Playback | OasrError:
        try:
            return work(path, display.partial(path.name))
        except OasrError as error:
            return error
        finally:
            display.done(path.name)

    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="oasr-stream")
    futures = [pool.submit(guarded, path) for path in paths]
    try:
        for path, future in zip(paths, futures):
            yield path, future.result()
    finally:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        wait([future for future in futures if future.running()], _GRACE_S)


def show(display: Display, name: str, outcome: Playback) -> None:
    """Prints the final text of a clip and how long it took."""
    display.print(f"{name}: {outcome.text}", style="bold")
    display.print(
        f"  {outcome.audio_s:.2f} s of audio in {len(outcome.latencies_s)} chunks, latency median "
        f"{milliseconds(outcome.median_s)}, p99 {milliseconds(outcome.p99_s)}, final "
        f"{milliseconds(outcome.latencies_s[-1])}, real-time factor {speed(outcome.real_time_factor)}"
    )
    if outcome.warning:
        display.print(f"  the server ended the stream early: {outcome.warning}", style="yellow")


def as_json(name: str, outcome: Playback | OasrError) -> dict[str, Any]:
    """The JSON object of a file: `text`, times in seconds, and `result`, or `error`."""
    if isinstance(outcome, OasrError):
        return {"file": name, "error": {"code": outcome.code or outcome.status, "message": str(outcome)}}
    document: dict[str, Any] = {
        "file": name,
        "text": outcome.text,
        "audio_seconds": round(outcome.audio_s, 4),
        "elapsed_seconds": round(outcome.elapsed_s, 4),
        "chunks": len(outcome.latencies_s),
        "latency_seconds": {
            "median": round(outcome.median_s, 5),
            "p99": round(outcome.p99_s, 5),
            "final": round(outcome.latencies_s[-1], 5),
        },
        "real_time_factor": round(outcome.real_time_factor, 5),
        "result": outcome.result,
    }
    if outcome.warning:
        document["warning"] = outcome.warning
    return document
