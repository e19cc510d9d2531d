"""`oasr bench`: how many streams in real time a server holds."""

import argparse
import json
from pathlib import Path

from rich.console import Console

from oasr_client import audio, transport
from oasr_client.commands import common
from oasr_client.errors import UsageError
from oasr_client.inputs import Utterance, collect
from oasr_client.load import plot
from oasr_client.load.capacity import capacity
from oasr_client.load.processes import Processes
from oasr_client.load.recordings import recording
from oasr_client.load.report import CapacityReport
from oasr_client.load.step import Step, texts_alone, try_streams
from oasr_client.load.streams import Target

# Streams take so many different recordings at most, each of which is heard alone first.
_MOST_VARIANTS = 8


class _ServerLost(Exception):
    """A search cannot go on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the load, the outputs and the server's address."""
    parser.add_argument(
        "--clips",
        metavar="INPUT",
        nargs="+",
        help="speech for the streams: files, folders, globs or manifests (default: the bundled clips)",
    )
    parser.add_argument(
        "--seconds", metavar="S", type=common.positive, default=30.0, help="audio of every stream (default: 30)"
    )
    parser.add_argument(
        "--chunk-ms", metavar="MS", type=common.positive, default=640.0, help="audio per request (default: 640)"
    )
    parser.add_argument("--start", metavar="N", type=common.count, default=8, help="streams of the first try")
    parser.add_argument(
        "--max", metavar="N", type=common.count, default=256, dest="most", help="most streams tried (default: 256)"
    )
    parser.add_argument(
        "--resolution",
        metavar="SHARE",
        type=common.positive,
        default=0.1,
        help="what passes and what does not lie within this share of each other (default: 0.1)",
    )
    parser.add_argument(
        "--differing",
        metavar="SHARE",
        type=_share,
        default=0.0,
        help="share of streams whose text may differ from that of a stream alone (default: 0; for bfloat16 and int8, "
        "which round with the batch)",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=common.count,
        help="processes that the streams are shared out over (default: one for every 128 streams in chunks of 640 ms, "
        "at most one a core)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures as JSON")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the latencies; needs matplotlib")
    common.add_option_arguments(parser)
    common.add_server_arguments(parser, timeout_s=transport.DEFAULT_TIMEOUT_S, with_version=True)


def run(args: argparse.Namespace) -> int:
    """Searches the largest number of streams that passes; 1 if not even one does or the server was lost."""
    if args.plot is not None:
        plot.figure_module()
    for path in (args.json, args.plot):
        if path is not None:
            _check_writable(path)
    console = Console(highlight=False, soft_wrap=True)
    url = args.server or transport.DEFAULT_URLS[args.protocol]
    target = Target(
        url,
        args.protocol,
        args.timeout,
        args.chunk_ms,
        common.request_options(args),
        common.credentials(args),
        args.model_version,
    )
    clips = [common.samples_of(one) for one in _utterances(args.clips)]
    waves = [recording(clips, args.seconds, variant) for variant in range(min(len(clips), _MOST_VARIANTS))]
    console.print(
        f"{url} over {args.protocol}: streams of {args.seconds:g} s in chunks of {args.chunk_ms:g} ms, in real time, "
        "each from a random moment on"
    )
    alone = texts_alone(target, waves)
    with Processes(args.processes) as processes:
        report = _search(args, target, waves, alone, processes, console)
    for line in report.lines:
        console.print(line)
    if args.json is not None:
        common.write(args.json, json.dumps(report.document, ensure_ascii=False, indent=2) + "\n")
    if args.plot is not None:
        plot.draw(report, args.plot)
    return 0 if report.streams and not report.is_lost else 1


def _search(
    args: argparse.Namespace,
    target: Target,
    waves: list[audio.Samples],
    alone: list[str],
    processes: Processes,
    console: Console,
) -> CapacityReport:
    steps: list[Step] = []

    def passes(streams: int) -> bool:
        steps.append(try_streams(target, streams, waves, alone, processes, args.differing))
        # These take minutes.
        console.print(steps[-1].line)
        if steps[-1].verdict.kind == "lost":
            raise _ServerLost
        return steps[-1].verdict.passes

    try:
        found = capacity(passes, args.start, args.most, args.resolution)
    except _ServerLost:
        # What was measured before stands.
        found = max((step.streams for step in steps if step.verdict.passes), default=0)
    return CapacityReport(target, args.seconds, args.most, found, tuple(steps))


def _utterances(sources: list[str] | None) -> list[Utterance]:
    if sources is not None:
        return collect(sources)
    # Only here, for it is the launcher's part that knows where they lie.
    from oasr_client.commands.demo import bundled_clips

    return [Utterance(path.name, path) for path in bundled_clips()]


def _check_writable(path: Path) -> None:
    """Minutes of measuring must not end with a file that cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def _share(text: str) -> float:
    """argparse type: a share from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1")
    return number
