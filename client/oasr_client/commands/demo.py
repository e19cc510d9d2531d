"""`oasr demo`: starts a server, streams and transcribes the bundled clips, and stops it."""

import argparse
import json
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from oasr_client import audio, transport
from oasr_client.commands import common
from oasr_client.commands.stream import in_order, show
from oasr_client.display import Display, milliseconds, speed
from oasr_client.errors import OasrError
from oasr_client.inputs import Utterance
from oasr_client.offline import Failure, OfflineClient, Transcription
from oasr_client.playback import OnProgress, Playback, play
from oasr_client.streaming import StreamingClient


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the pace and the checkpoint."""
    parser.add_argument("--realtime", action="store_true", help="stream at the pace of a microphone")
    parser.add_argument("--checkpoint", metavar="DIR", type=Path, help="model to serve (default: the bundled one)")


def run(args: argparse.Namespace) -> int:
    """Runs the demo; 1 if a clip failed or nothing was recognised in it."""
    clips = bundled_clips()
    launcher = common.backend("serve", "demo")
    console = Console(highlight=False)
    # Killed without a word, this process would leave the server behind.
    signal.signal(signal.SIGTERM, _interrupt)
    begin = time.perf_counter()
    console.print("starting the server ...")
    try:
        server_context = launcher.running_server(checkpoint=args.checkpoint, http_port=0, grpc_port=0, metrics_port=0)
        with server_context as server:
            console.print(f"the server is ready after {time.perf_counter() - begin:.1f} s: {server.grpc_url}")
            failures = transcribe_both_ways(server.grpc_url, clips, args.realtime, console)
    except ImportError as error:
        raise common.missing_extra(error, "demo") from error
    console.print(f"done in {time.perf_counter() - begin:.1f} s; the server is stopped")
    if failures:
        raise OasrError(f"{len(failures)} of {2 * len(clips)} transcriptions failed; the first: {failures[0]}")
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def bundled_clips() -> dict[Path, str]:
    """The clips of the distribution with their reference texts, in the order of their names.

    Raises:
        OasrError: the distribution does not hold them.
    """
    paths = common.backend("utils.paths", "demo")
    try:
        folder: Path = paths.assets_dir() / "clips"
        references = json.loads((folder / "clips.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OasrError(f"the demo clips cannot be read ({error}): install the package again") from error
    clips = {
        path: str(references.get(path.name, ""))
        for path in sorted(folder.iterdir())
        if path.suffix in (".wav", ".flac")
    }
    if not clips:
        raise OasrError(f"no demo clips in {folder}: install the package again")
    return clips


def transcribe_both_ways(url: str, clips: Mapping[Path, str], realtime: bool, console: Console) -> list[str]:
    """Streams and transcribes the clips on the gRPC server at `url`, prints a table, and names what failed."""
    streamed: dict[Path, Playback | OasrError] = {}
    stop = threading.Event()
    console.print("\nstreaming (oasr_streaming):")
    with transport.connect(url, "grpc") as via:
        client = StreamingClient(via=via)

        def one(utterance: Utterance, on_progress: OnProgress) -> Playback:
            return play(client, audio.read(utterance.path), realtime=realtime, on_progress=on_progress, stop=stop)

        utterances = [Utterance(path.name, path) for path in clips]
        with Display(console) as display:
            for utterance, outcome in in_order(utterances, one, display, 1, stop):
                path = utterance.path
                streamed[path] = outcome
                if isinstance(outcome, Playback):
                    show(display, path.name, outcome)
        console.print("\ntranscribing whole files (oasr_transcribe):")
        begin = time.perf_counter()
        offline = dict(zip(clips, OfflineClient(via=via).transcribe_many(clips)))
        offline_s = time.perf_counter() - begin
    audio_s = sum(outcome.audio_s for outcome in streamed.values() if isinstance(outcome, Playback))
    waited_s = sum(sum(outcome.latencies_s) for outcome in streamed.values() if isinstance(outcome, Playback))
    console.print(table(clips, streamed, offline))
    if audio_s:
        console.print(f"{audio_s:.1f} s of audio: streamed at real-time factor {speed(waited_s / audio_s)},")
        console.print(f"whole files in {offline_s:.2f} s at real-time factor {speed(offline_s / audio_s)}")
    return [
        f"{path.name}: {problem}"
        for path, reference in clips.items()
        for outcome in (streamed[path], offline[path])
        if (problem := problem_of(outcome, reference))
    ]


def problem_of(outcome: Playback | Transcription | Failure | OasrError, reference: str) -> str:
    """Why a clip counts as failed, "" if it does not."""
    if isinstance(outcome, Failure):
        return str(outcome.error)
    if isinstance(outcome, OasrError):
        return str(outcome)
    return "nothing was recognised" if reference and not outcome.text else ""


def table(
    clips: Mapping[Path, str],
    streamed: Mapping[Path, Playback | OasrError],
    offline: Mapping[Path, Transcription | Failure],
) -> Table:
    """The clips with what was said, what was recognised either way, and how fast."""
    rows = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption="latency: median per chunk (streamed), of the file (whole); rtf: real-time factor",
        caption_justify="left",
    )
    rows.add_column("")
    rows.add_column("text", overflow="fold", ratio=1)
    for heading in ("latency", "time", "rtf"):
        rows.add_column(heading, justify="right", no_wrap=True)
    for path, reference in clips.items():
        live, whole = streamed[path], offline[path]
        rows.add_row("", Text(path.name), style="bold")
        rows.add_row("spoken", Text(reference), style="dim")
        rows.add_row("streamed", Text(_text(live)), *_stream_figures(live))
        audio_s = live.audio_s if isinstance(live, Playback) else 0.0
        rows.add_row("whole", Text(_text(whole)), *_file_figures(whole, audio_s), end_section=True)
    return rows


def _text(outcome: Playback | Transcription | Failure | OasrError) -> str:
    return outcome.text if isinstance(outcome, Playback | Transcription) else f"failed: {problem_of(outcome, '')}"


def _stream_figures(outcome: Playback | OasrError) -> tuple[str, ...]:
    if isinstance(outcome, OasrError):
        return ()
    return milliseconds(outcome.median_s), f"{outcome.elapsed_s:.2f} s", f"{outcome.real_time_factor:.3f}"


def _file_figures(outcome: Transcription | Failure, audio_s: float) -> tuple[str, ...]:
    if isinstance(outcome, Failure):
        return ()
    factor = f"{outcome.latency_s / audio_s:.3f}" if audio_s else ""
    return milliseconds(outcome.latency_s), f"{outcome.latency_s:.2f} s", factor
