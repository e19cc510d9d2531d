"""`oasr transcribe`: sends audio files whole."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from oasr_client import offline, subtitles
from oasr_client.commands import common
from oasr_client.display import failure_line
from oasr_client.errors import OasrError, UsageError
from oasr_client.inputs import Utterance, collect
from oasr_client.offline import Failure, OfflineClient, Transcription
from oasr_client.summary import Run

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
    common.add_server_arguments(parser, timeout_s=offline.DEFAULT_TIMEOUT_S)


def run(args: argparse.Namespace) -> int:
    """Writes the text of every input in the order given, and a summary; 1 if one of them failed."""
    utterances = collect(args.inputs)
    check_outputs(args, utterances)
    options = common.request_options(args)
    if args.format in _SUBTITLES:
        options.setdefault("word_timestamps", True)
    results = Run("file", args.normalize)
    begin = time.perf_counter()
    with (
        OfflineClient(
            args.server, args.protocol, args.timeout, retry_seconds=_RETRY_S, credentials=common.credentials(args)
        ) as client,
        _destination(args) as destination,
        _progress(args) as progress,
    ):

        def one(utterance: Utterance) -> Transcription | Failure:
            try:
                if utterance.is_whole:
                    return client.transcribe_file(utterance.path, options, want_result=True)
                return client.transcribe_samples(common.samples_of(utterance), options, want_result=True)
            except OasrError as error:
                return Failure(utterance.name, error)

        task = progress.add_task("transcribing", total=len(utterances))
        for utterance, outcome in zip(utterances, offline.in_order(utterances, one, args.concurrency)):
            if isinstance(outcome, Failure):
                results.failed_at(utterance.name)
            else:
                audio_s = float((outcome.result or {}).get("audio_seconds", 0.0))
                results.succeeded(outcome.text, audio_s, [outcome.latency_s], utterance.reference)
            if isinstance(outcome, Failure) and args.format != "json":
                print(failure_line(utterance.name, outcome.error), file=sys.stderr)
            else:
                text = rendered(utterance, outcome, args.format)
                if args.output_dir is not None:
                    common.write(args.output_dir / f"{utterance.target}{_SUFFIX[args.format]}", text)
                else:
                    print(text, end="", file=destination, flush=True)
            progress.advance(task)
    common.show_summary(results.summary(time.perf_counter() - begin), args.summary)
    return 1 if results.failed else 0


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
