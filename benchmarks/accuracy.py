"""Word error rate per evaluation set, streaming and offline, through the real server.

    python -m benchmarks.accuracy --evalset DIR --json FILE

DIR holds `manifest.jsonl`: one object a line with `set`, `audio_filepath` (relative to DIR) and `text`.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jiwer
from rich.console import Console
from rich.table import Table

from oasr_backend.serve import running_server
from oasr_client import OfflineClient, StreamingClient, audio
from oasr_client.playback import play

_CONCURRENCY = 8


@dataclass(frozen=True)
class Utterance:
    """One line of the manifest."""

    set_name: str
    path: Path
    text: str


@dataclass(frozen=True)
class Score:
    """Errors of one set in one arm; `wer` in percent."""

    dtype: str
    mode: str
    set_name: str
    utterances: int
    words: int
    errors: int

    @property
    def wer(self) -> float:
        return 100.0 * self.errors / self.words


def read_manifest(evalset: Path) -> list[Utterance]:
    lines = (evalset / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return [Utterance(row["set"], evalset / row["audio_filepath"], row["text"]) for row in rows]


def score(dtype: str, mode: str, utterances: Sequence[Utterance], texts: Sequence[str]) -> list[Score]:
    """Pooled word errors per set; text is compared as it is, without a normaliser."""
    pairs = sorted(zip(utterances, texts, strict=True), key=lambda pair: pair[0].set_name)
    scores = []
    for set_name, group in groupby(pairs, key=lambda pair: pair[0].set_name):
        members = list(group)
        counts = jiwer.process_words([utterance.text for utterance, _ in members], [text for _, text in members])
        errors = counts.substitutions + counts.deletions + counts.insertions
        words = counts.hits + counts.substitutions + counts.deletions
        scores.append(Score(dtype, mode, set_name, len(members), words, errors))
    return scores


def transcribe_all(utterances: Sequence[Utterance], transcribe: Callable[[Path], str]) -> list[str]:
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        return list(pool.map(transcribe, (utterance.path for utterance in utterances)))


def measure(
    utterances: Sequence[Utterance],
    checkpoint: Path | None,
    dtype: str,
    silence_pad: bool,
    quantization: str | None = None,
) -> list[Score]:
    """Both modes of one server."""
    environment = {"OASR_DTYPE": dtype, "OASR_FINALIZE_SILENCE_PAD": str(silence_pad).lower()}
    if quantization is not None:
        environment["OASR_QUANTIZATION"] = quantization
    with running_server(checkpoint=checkpoint, environment=environment) as server:
        with StreamingClient(server.grpc_url) as client:
            streamed = transcribe_all(utterances, lambda path: play(client, audio.read(path)).text)
        with OfflineClient(server.grpc_url) as offline:
            whole = transcribe_all(utterances, lambda path: offline.transcribe_file(path).text)
    name = dtype if quantization is None else f"{dtype}, {quantization}"
    return score(name, "streaming", utterances, streamed) + score(name, "offline", utterances, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, help="default: the bundled one")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--quantization", metavar="SCHEME", help="every dtype in this scheme as well")
    parser.add_argument("--no-silence-pad", action="store_true", help="do not pad the end of a stream with silence")
    arguments = parser.parse_args()
    utterances = read_manifest(arguments.evalset)
    scores = [
        row
        for dtype in arguments.dtypes
        for scheme in dict.fromkeys((None, arguments.quantization))
        for row in measure(utterances, arguments.checkpoint, dtype, not arguments.no_silence_pad, scheme)
    ]
    table = Table("set", "utterances", "words", "mode", "dtype", "errors", "WER %")
    for row in sorted(scores, key=lambda row: (row.set_name, row.mode, row.dtype)):
        numbers = (str(row.utterances), str(row.words), row.mode, row.dtype, str(row.errors), f"{row.wer:.2f}")
        table.add_row(row.set_name, *numbers)
    Console().print(table)
    document = {
        "silence_pad": not arguments.no_silence_pad,
        "scores": [{**vars(row), "wer": round(row.wer, 2)} for row in scores],
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
