"""Word error rate by decode method, streamed and offline, in the engine itself.

python -m benchmarks.decoding --evalset DIR --json FILE [--methods ctc_greedy,ctc_prefix_beam,attention_rescoring]
"""

import argparse
import json
import time
from itertools import groupby
from pathlib import Path

import jiwer
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import read_manifest
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import audio

_METHODS = "ctc_greedy,ctc_prefix_beam,attention_rescoring"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--methods", default=_METHODS)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--options", type=json.loads, default={}, help="decode options as JSON")
    arguments = parser.parse_args()
    utterances = sorted(read_manifest(arguments.evalset), key=lambda one: one.set_name)
    waves = [audio.read(one.path) for one in utterances]

    table = Table("method", "mode", "set", "WER %", "times real time")
    rows = []
    for method in arguments.methods.split(","):
        options = {} if method == "ctc_greedy" else arguments.options
        engine = ASREngine(
            EngineConfig(
                ckpt_dir=str(demo_checkpoint_dir()),
                dtype=arguments.dtype,
                decode_method=method,
                decode_options=options,
            )
        )
        for mode in ("streaming", "offline"):
            started = time.perf_counter()
            texts = [output.text for output in engine.transcribe_outputs(waves, streaming=mode == "streaming")]
            seconds = time.perf_counter() - started
            speed = sum(map(len, waves)) / audio.SAMPLE_RATE / seconds
            pairs = zip(utterances, texts, strict=True)
            for set_name, group in groupby(pairs, key=lambda pair: pair[0].set_name):
                members = list(group)
                wer = 100 * jiwer.wer([one.text for one, _ in members], [text for _, text in members])
                rows.append({"method": method, "mode": mode, "set": set_name, "wer": wer, "times_real_time": speed})
                table.add_row(method, mode, set_name, f"{wer:.2f}", f"{speed:.0f}")
    Console().print(table)
    ratios = {f"{row['method']}, {row['mode']}, {row['set']}": row["wer"] for row in rows}
    arguments.json.write_text(json.dumps({"rows": rows, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
