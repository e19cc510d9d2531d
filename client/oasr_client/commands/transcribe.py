"""`oasr transcribe`: sends audio files whole."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from oasr_client import offline, subtitles
from oasr_client.commands import common
from oasr_client.display import failure_line
from oasr_client.errors import AudioError, InvalidRequest, OasrError, UsageError
from oasr_client.fleet import Fleet
from oasr_client.inputs import Utterance, collect
from oasr_client.offline import Failure, OfflineClient, Transcription
from oasr_client.summary import Run
from oasr_client.unfinished import UnfinishedRun

FORMATS = ("text", "json", "srt", "vtt")
_SUBTITLES = ("srt", "vtt")
_SUFFIX = {"text": ".txt", "json": ".json", "srt": ".srt", "vtt": ".vtt"}
_RETRY_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds inputs, outputs, options and the server's address."""
    common.add_input_arguments(parser, concurrency=8)
    common.add_output_arguments(parser, FORMATS)
    parser.add_argument("--output", metavar="FILE", type=Path, help="write all texts to a file, not to standard output")
    parser.add_argument("--output-dir", metavar="DIR", type=Path, help="write a file for every input to a folder")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar, also on a terminal")
    common.add_option_arguments(parser)
    common.add_server_arguments(parser, timeout_s=offline.DEFAULT_TIMEOUT_S, with_version=True)
    parser.add_argument(
        "--servers",
        metavar="HOST:PORT,…",
        type=common.addresses,
        help="share the inputs out over several servers; with --json --output a run that was interrupted goes on where "
        "it was when the command is repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Writes the text of every input in the order given, and a summary; 1 if one of them failed."""
    utterances = collect(args.inputs)
    check_outputs(args, utterances)
    options = common.request_options(args)
    if args.format in _SUBTITLES:
        options.setdefault("word_timestamps", True)
    results = Run("file", args.normalize)
    begin = time.perf_counter()
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                OfflineClient(
                    url,
                    args.protocol,
                    args.timeout,
                    retry_seconds=0 if many else _RETRY_S,
                    model_version=args.model_version,
                    credentials=common.credentials(args),
                )
            )
            for url, many in _servers(args)
        ]
        kept = stack.enter_context(_unfinished(args, utterances, options)) if args.servers and args.output else None
        destination = sys.stdout if kept else stack.enter_context(_destination(args))
        progress = stack.enter_context(_progress(args))

        def one(client: OfflineClient, utterance: Utterance) -> Transcription:
            if utterance.is_whole:
                return client.transcribe_file(utterance.path, options, want_result=True)
            return client.transcribe_samples(common.samples_of(utterance), options, want_result=True)

        def done(utterance: Utterance, outcome: Transcription | Failure) -> None:
            if isinstance(outcome, Failure):
                results.failed_at(utterance.name)
            else:
                audio_s = float((outcome.result or {}).get("audio_seconds", 0.0))
                results.succeeded(outcome.text, audio_s, [outcome.latency_s], utterance.reference)
            progress.advance(task)

        task = progress.add_task("transcribing", total=len(utterances))
        if kept is not None:
            for utterance, outcome in _rest(kept, Fleet(clients, args.concurrency), utterances, one, progress, task):
                done(utterance, outcome)
            _close(kept, utterances)
        else:
            for utterance, outcome in zip(utterances, _in_order(clients, utterances, one, args)):
                _show(args, destination, utterance, outcome)
                done(utterance, outcome)
    common.show_summary(results.summary(time.perf_counter() - begin), args.summary)
    return 1 if results.failed else 0


def _servers(args: argparse.Namespace) -> list[tuple[str | None, bool]]:
    """Addresses, and whether others stand in for one that fails."""
    if args.servers and args.server:
        raise UsageError("--server and --servers exclude each other: give one of them")
    return [(url, True) for url in args.servers] if args.servers else [(args.server, False)]


def _in_order(
    clients: Sequence[OfflineClient],
    utterances: Sequence[Utterance],
    one: Callable[[OfflineClient, Utterance], Transcription],
    args: argparse.Namespace,
) -> Iterator[Transcription | Failure]:
    if args.servers:
        early: dict[int, Transcription | Failure] = {}
        following = 0
        for place, outcome in Fleet(clients, args.concurrency).spread(utterances, one):
            early[place] = _outcome(utterances[place], outcome)
            while following in early:
                yield early.pop(following)
                following += 1
        return

    def attempt(utterance: Utterance) -> Transcription | Failure:
        try:
            return one(clients[0], utterance)
        except OasrError as error:
            return Failure(utterance.name, error)

    yield from offline.in_order(utterances, attempt, args.concurrency)


def _outcome(utterance: Utterance, outcome: Transcription | OasrError) -> Transcription | Failure:
    return Failure(utterance.name, outcome) if isinstance(outcome, OasrError) else outcome


def _unfinished(args: argparse.Namespace, utterances: Sequence[Utterance], options: Mapping[str, Any]) -> UnfinishedRun:
    if args.format != "json":
        raise UsageError("--servers with --output writes JSON lines: add --json, or use --output-dir")
    request: dict[str, Any] = {"options": dict(options)}
    if args.model_version is not None:
        request["model_version"] = args.model_version
    return UnfinishedRun(args.output, request, [utterance.name for utterance in utterances])


def _rest(
    kept: UnfinishedRun,
    fleet: Fleet[OfflineClient],
    utterances: Sequence[Utterance],
    one: Callable[[OfflineClient, Utterance], Transcription],
    progress: Progress,
    task: TaskID,
) -> Iterator[tuple[Utterance, Transcription | Failure]]:
    """Transcribes what no earlier run has finished, and keeps each result as it comes."""
    left = [utterance for utterance in utterances if utterance.name not in kept.finished]
    if len(left) < len(utterances):
        print(f"{len(utterances) - len(left)} of {len(utterances)} were finished before", file=sys.stderr)
        progress.advance(task, len(utterances) - len(left))

    def keeping(client: OfflineClient, utterance: Utterance) -> Transcription:
        """Keeps a result before its server is given another clip: a killed run repeats one clip a place at most."""
        try:
            told = one(client, utterance)
        except (AudioError, InvalidRequest) as error:
            # What a server could not do is left for the next run; what is wrong with the input stays so.
            kept.add(utterance.name, as_json(utterance, Failure(utterance.name, error)))
            raise
        kept.add(utterance.name, as_json(utterance, told))
        return told

    for place, outcome in fleet.spread(left, keeping):
        utterance, told = left[place], _outcome(left[place], outcome)
        if isinstance(told, Failure):
            print(failure_line(utterance.name, told.error), file=sys.stderr)
        yield utterance, told


def _close(kept: UnfinishedRun, utterances: Sequence[Utterance]) -> None:
    left = len(utterances) - len(kept.finished)
    if left:
        print(f"{left} of {len(utterances)} are left: repeat the command to go on with them", file=sys.stderr)
    else:
        kept.complete()


def _show(
    args: argparse.Namespace, destination: IO[str], utterance: Utterance, outcome: Transcription | Failure
) -> None:
    if isinstance(outcome, Failure) and args.format != "json":
        print(failure_line(utterance.name, outcome.error), file=sys.stderr)
        return
    text = rendered(utterance, outcome, args.format)
    if args.output_dir is not None:
        common.write(args.output_dir / f"{utterance.target}{_SUFFIX[args.format]}", text)
    else:
        print(text, end="", file=destination, flush=True)


def check_outputs(args: argparse.Namespace, utterances: Sequence[Utterance]) -> None:
    """Raises UsageError where outputs would overwrite each other or could not be told apart."""
    if args.output is not None and args.output_dir is not None:
        raise UsageError("--output and --output-dir exclude each other: give one of them")
    if args.format in _SUBTITLES and args.output_dir is None and len(utterances) > 1:
        raise UsageError(f"{args.format} of {len(utterances)} inputs needs a file for each: give --output-dir")
    if args.output_dir is not None:
        names: dict[str, str] = {}
        for utterance in utterances:
            other = names.setdefault(utterance.target, utterance.name)
            if other != utterance.name:
                raise UsageError(
                    f"{other} and {utterance.name} would both be written to {utterance.target}{_SUFFIX[args.format]}: "
                    "transcribe them into different folders, or name the folder that holds both"
                )


def rendered(utterance: Utterance, outcome: Transcription | Failure, form: str) -> str:
    """An outcome in one of `FORMATS`."""
    if form == "json":
        return json.dumps(as_json(utterance, outcome), ensure_ascii=False) + "\n"
    assert isinstance(outcome, Transcription)
    if form == "text":
        return f"{utterance.name}: {outcome.text}\n"
    cues = subtitles.cues_of(outcome.result or {})
    return subtitles.srt(cues) if form == "srt" else subtitles.vtt(cues)


def as_json(utterance: Utterance, outcome: Transcription | Failure) -> dict[str, Any]:
    """The JSON object of an input: `text`, `latency_seconds` and `result`, or `error`."""
    document: dict[str, Any] = {"file": utterance.name}
    if utterance.reference is not None:
        document["reference"] = utterance.reference
    if isinstance(outcome, Failure):
        return {**document, "error": common.error_document(outcome.error)}
    return {
        **document,
        "text": outcome.text,
        "latency_seconds": round(outcome.latency_s, 5),
        "result": outcome.result,
    }


def _destination(args: argparse.Namespace) -> Any:
    if args.output is None:
        return nullcontext(sys.stdout)
    common.write(args.output, "")
    opened: IO[str] = open(args.output, "w", encoding="utf-8")  # noqa: SIM115 (the caller closes it)
    return opened


def _progress(args: argparse.Namespace) -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=args.no_progress or not console.is_terminal,
        transient=True,
        # Output that goes to a file or a pipe must not be drawn into standard error.
        redirect_stdout=sys.stdout.isatty() and args.output is None,
    )
