"""`oasr stream`: plays audio files, or a microphone, into streams and shows the text as it comes."""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from rich.console import Console

from oasr_client import audio, transport
from oasr_client.commands import common
from oasr_client.display import Display, failure_line, milliseconds, speed
from oasr_client.errors import OasrError, UsageError
from oasr_client.inputs import Utterance, collect
from oasr_client.microphone import Microphone
from oasr_client.playback import OnProgress, Playback, Progress, play
from oasr_client.resume import Resume
from oasr_client.streaming import StreamingClient
from oasr_client.summary import Run

_GRACE_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the inputs, the pace, options and the server's address."""
    common.add_input_arguments(parser, concurrency=1, nargs="*")
    parser.add_argument(
        "--chunk-ms", metavar="MS", type=common.positive, default=640.0, help="audio per request (default: 640)"
    )
    parser.add_argument("--realtime", action="store_true", help="send at the pace of a microphone")
    parser.add_argument("--mic", action="store_true", help="stream the microphone until Ctrl-C")
    parser.add_argument("--device", metavar="NAME", help="input device of --mic, by name or number")
    common.add_output_arguments(parser, ("text", "json"))
    common.add_option_arguments(parser)
    group = parser.add_argument_group("endpoints")
    group.add_argument(
        "--endpointing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="make what was said final at pauses (default: as the server is configured; with --mic: on)",
    )
    group.add_argument(
        "--endpoint-silence-ms", metavar="MS", type=common.positive, help="silence after speech that ends a segment"
    )
    group.add_argument("--two-pass", action="store_true", help="final texts are rescored by the attention decoder")
    default = Resume()
    group = parser.add_argument_group("resume")
    group.add_argument("--no-resume", action="store_true", help="fail when the server is lost")
    group.add_argument(
        "--resume-seconds",
        metavar="S",
        type=common.positive,
        default=default.resume_seconds,
        help=f"how long a lost server is waited for (default: {default.resume_seconds:g})",
    )
    group.add_argument(
        "--max-replay-seconds",
        metavar="S",
        type=common.positive,
        default=default.max_replay_seconds,
        help=f"most audio that is kept to be sent again (default: {default.max_replay_seconds:g})",
    )
    common.add_server_arguments(parser, timeout_s=transport.DEFAULT_TIMEOUT_S, with_version=True)


def run(args: argparse.Namespace) -> int:
    """Streams every input; 1 if one of them failed."""
    if args.mic == bool(args.inputs):
        raise UsageError("give either audio to stream or --mic")
    if args.device is not None and not args.mic:
        raise UsageError("--device is set without --mic: leave it out")
    options = stream_options(args)
    resume = False if args.no_resume else Resume(args.resume_seconds, args.max_replay_seconds)
    display = Display(Console(highlight=False), partials=args.format == "text")
    with StreamingClient(
        args.server,
        args.protocol,
        args.timeout,
        model_version=args.model_version,
        credentials=common.credentials(args),
    ) as client:
        if args.mic:
            return _listen(args, client, options, resume, display)
        return _play_all(args, client, options, resume, display)


def stream_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of every stream."""
    endpointing = True if args.endpointing is None and args.mic else args.endpointing
    return common.request_options(
        args,
        {
            "endpointing": endpointing,
            "endpoint_silence_ms": args.endpoint_silence_ms,
            "two_pass": args.two_pass or None,
        },
    )


def _play_all(
    args: argparse.Namespace,
    client: StreamingClient,
    options: Mapping[str, Any],
    resume: bool | Resume,
    display: Display,
) -> int:
    utterances = collect(args.inputs)
    stop = threading.Event()
    results = Run("chunk", args.normalize)
    # The live view shows what is final apart from what is not, where there is such a thing before the end.
    want_result = args.format == "json" or (display.is_live and options.get("endpointing") is True)
    begin = time.perf_counter()
    with display:

        def one(utterance: Utterance, on_progress: OnProgress) -> Playback:
            return play(
                client,
                common.samples_of(utterance),
                chunk_ms=args.chunk_ms,
                realtime=args.realtime,
                options=options,
                want_result=want_result,
                on_progress=on_progress,
                stop=stop,
                resume=resume,
            )

        for utterance, outcome in in_order(utterances, one, display, args.concurrency, stop):
            if isinstance(outcome, OasrError):
                results.failed_at(utterance.name)
            else:
                results.succeeded(outcome.text, outcome.audio_s, outcome.latencies_s, utterance.reference)
                results.resumes += outcome.resumes
            if args.format == "json":
                print(json.dumps(as_json(utterance, outcome), ensure_ascii=False), flush=True)
            elif isinstance(outcome, OasrError):
                print(failure_line(utterance.name, outcome), file=sys.stderr)
            else:
                show(display, utterance.name, outcome)
    common.show_summary(results.summary(time.perf_counter() - begin), args.summary)
    return 1 if results.failed else 0


def _listen(
    args: argparse.Namespace,
    client: StreamingClient,
    options: Mapping[str, Any],
    resume: bool | Resume,
    display: Display,
) -> int:
    device = int(args.device) if args.device is not None and args.device.isdigit() else args.device
    shown = 0
    sent_s = 0.0
    with (
        Microphone(args.chunk_ms, device) as microphone,
        client.stream(options, want_result=True, resume=resume) as stream,
        display,
    ):
        print("listening; end with Ctrl-C", file=sys.stderr)
        on_progress = display.progress("mic")
        try:
            for chunk in microphone.chunks():
                response = stream.send(chunk)
                sent_s += audio.seconds(chunk)
                on_progress(Progress(sent_s, response, response.latency_s))
                shown = show_finals(display, args.format, response.result or {}, shown)
        except KeyboardInterrupt:
            pass
        display.done("mic")
        final = stream.finish()
        show_finals(display, args.format, final.result or {}, shown)
        if microphone.overflows:
            print(f"oasr: audio was lost {microphone.overflows} times: this machine is too slow", file=sys.stderr)
    return 0


def show_finals(display: Display, form: str, result: Mapping[str, Any], shown: int) -> int:
    """Prints the final segments behind the first `shown`; how many there are now."""
    finals = [segment for segment in result.get("segments", ()) if segment["is_final"]]
    for segment in finals[shown:]:
        if form == "json":
            print(json.dumps(segment, ensure_ascii=False), flush=True)
        else:
            display.print(f"{segment['start']:8.2f} s  {segment['text']}", style="bold")
    return max(shown, len(finals))


def in_order(
    utterances: Sequence[Utterance],
    work: Callable[[Utterance, OnProgress], Playback],
    display: Display,
    concurrency: int,
    stop: threading.Event,
) -> Iterator[tuple[Utterance, Playback | OasrError]]:
    """Runs `work` on every utterance, `concurrency` at a time; yields outcomes in their order.

    When the caller leaves or is interrupted, `stop` is set and running work is given 2 s to end its streams.
    """

    def guarded(utterance: Utterance) -> Playback | OasrError:
        try:
            return work(utterance, display.progress(utterance.path.name))
        except OasrError as error:
            return error
        finally:
            display.done(utterance.path.name)

    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="oasr-stream")
    futures = [pool.submit(guarded, utterance) for utterance in utterances]
    try:
        for utterance, future in zip(utterances, futures):
            yield utterance, future.result()
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
    if outcome.resumes:
        display.print(f"  the server was lost and the stream resumed {outcome.resumes} times", style="yellow")
    if outcome.warning:
        display.print(f"  the server ended the stream early: {outcome.warning}", style="yellow")


def as_json(utterance: Utterance, outcome: Playback | OasrError) -> dict[str, Any]:
    """The JSON object of an input: `text`, times in seconds, and `result`, or `error`."""
    document: dict[str, Any] = {"file": utterance.name}
    if utterance.reference is not None:
        document["reference"] = utterance.reference
    if isinstance(outcome, OasrError):
        return {**document, "error": common.error_document(outcome)}
    document |= {
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
        "resumes": outcome.resumes,
        "result": outcome.result,
    }
    if outcome.warning:
        document["warning"] = outcome.warning
    return document
