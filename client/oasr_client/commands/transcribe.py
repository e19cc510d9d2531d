"""`oasr transcribe`: sends audio files whole."""

import argparse
import json
import sys
from typing import Any

from oasr_client import offline
from oasr_client.commands import common
from oasr_client.display import failure_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the files and the server's address."""
    common.add_request_arguments(parser, concurrency=8)
    common.add_server_arguments(parser, timeout_s=offline.DEFAULT_TIMEOUT_S)


def run(args: argparse.Namespace) -> int:
    """Prints the text of every file in the order given; 1 if one of them failed."""
    failed = 0
    with offline.OfflineClient(args.server, args.protocol, args.timeout) as client:
        outcomes = client.transcribe_many(args.files, args.concurrency, common.request_options(args), args.json)
        for outcome in outcomes:
            failed += isinstance(outcome, offline.Failure)
            if args.json:
                print(json.dumps(as_json(outcome), ensure_ascii=False), flush=True)
            elif isinstance(outcome, offline.Failure):
                print(failure_line(outcome.source, outcome.error), file=sys.stderr)
            else:
                print(f"{outcome.source}: {outcome.text}", flush=True)
    return 1 if failed else 0


def as_json(outcome: offline.Transcription | offline.Failure) -> dict[str, Any]:
    """The JSON object of a file: `text`, `latency_seconds` and `result`, or `error`."""
    if isinstance(outcome, offline.Failure):
        error = outcome.error
        return {"file": outcome.source, "error": {"code": error.code or error.status, "message": str(error)}}
    return {
        "file": outcome.source,
        "text": outcome.text,
        "latency_seconds": round(outcome.latency_s, 5),
        "result": outcome.result,
    }
