"""One hour of one stream: memory, step time, and word error rate by minute.

    python -m benchmarks.long_stream --evalset DIR --json FILE [--minutes 60] [--pause 0]

The recording is the evaluation set's utterances of `--set`, joined in a fixed random order and repeated.
"""

import argparse
import json
import resource
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import jiwer
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import read_manifest
from benchmarks.joined import Placed, by_time, recording
from oasr_backend.engine import ASREngine, EngineConfig, RequestOutput
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import audio

_CHUNK = 10_240
# Minutes that are reported together.
_BUCKET = 10


@dataclass(frozen=True)
class Arm:
    """A way to bound a stream's history."""

    name: str
    left_chunks: int
    max_blocks: int
    options: dict[str, object] = field(default_factory=dict)


# 128 pages of 16 frames are 82 s.
ARMS = (
    Arm("left 4", 4, 512),
    Arm("recycling at 82 s", -1, 128),
    Arm("endpoints, history kept", -1, 128, {"endpointing": True, "endpoint_history": "keep"}),
    Arm("endpoints, history reset", -1, 128, {"endpointing": True, "endpoint_history": "reset"}),
)


@dataclass(frozen=True)
class Run:
    """What an arm did. Step times in milliseconds, memory in MiB of the whole process."""

    arm: str
    output: RequestOutput
    steps: list[float]
    resident: list[float]


def stream(arm: Arm, wave: np.ndarray, dtype: str) -> Run:
    engine = ASREngine(
        EngineConfig(
            ckpt_dir=str(demo_checkpoint_dir()),
            dtype=dtype,
            max_batch_size=1,
            num_left_chunks=arm.left_chunks,
            max_blocks_per_seq=arm.max_blocks,
            recycle_streaming_history=True,
        )
    )
    request = engine.add_streaming_request(decoding={"word_timestamps": True, **arm.options})
    steps, resident = [], []
    for start in range(0, len(wave), _CHUNK):
        engine.feed_chunk(request, wave[start : start + _CHUNK])
        began = time.perf_counter()
        engine.step()
        steps.append(1000 * (time.perf_counter() - began))
        resident.append(_resident_mib())
    engine.feed_chunk(request, [], is_last=True)
    (output,) = engine.run()
    return Run(arm.name, output, steps, resident)


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def alone(placed: list[Placed], wave: np.ndarray, dtype: str) -> dict[Placed, str]:
    """The text of every utterance in a stream of its own."""
    engine = ASREngine(EngineConfig(ckpt_dir=str(demo_checkpoint_dir()), dtype=dtype, max_batch_size=8))
    cuts = [wave[round(one.start * audio.SAMPLE_RATE) : round(one.end * audio.SAMPLE_RATE)] for one in placed]
    return dict(zip(placed, engine.transcribe(cuts), strict=True))


def error_rates(texts: dict[Placed, str]) -> dict[int, float]:
    """Word error rate in percent by the first minute of each bucket."""
    buckets: dict[int, list[Placed]] = defaultdict(list)
    for one in texts:
        buckets[int(one.start // 60) // _BUCKET * _BUCKET].append(one)
    return {
        minute: 100 * jiwer.wer([one.text for one in members], [texts[one] for one in members])
        for minute, members in sorted(buckets.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--set", default="an4", dest="set_name")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between utterances")
    arguments = parser.parse_args()
    utterances = [one for one in read_manifest(arguments.evalset) if one.set_name == arguments.set_name]
    wave, placed = recording(utterances, arguments.minutes, arguments.pause)

    table = Table("arm", "WER % by minute", "step p50 ms, first and last tenth", "step p99 ms", "resident MiB, same")
    rates = {"alone": error_rates(alone(placed, wave, arguments.dtype))}
    table.add_row("alone", _listed(rates["alone"]), "", "", "")
    arms: dict[str, dict[str, float]] = {}
    present: dict[str, float] = {}
    for arm in ARMS:
        run = stream(arm, wave, arguments.dtype)
        texts = by_time(run.output, placed)
        rates[arm.name] = error_rates(texts)
        present[arm.name] = sum(bool(text) for text in texts.values()) / len(texts)
        tenth = max(1, len(run.steps) // 10)
        # The first seconds touch memory for the first time.
        numbers = {
            "step_ms_first": float(np.median(run.steps[tenth // 2 : tenth])),
            "step_ms_last": float(np.median(run.steps[-tenth:])),
            "step_ms_p99": float(np.percentile(run.steps, 99)),
            "resident_mib_first": run.resident[tenth],
            "resident_mib_last": run.resident[-1],
        }
        arms[arm.name] = numbers
        table.add_row(
            arm.name,
            _listed(rates[arm.name]),
            f"{numbers['step_ms_first']:.1f}, {numbers['step_ms_last']:.1f}",
            f"{numbers['step_ms_p99']:.1f}",
            f"{numbers['resident_mib_first']:.0f}, {numbers['resident_mib_last']:.0f}",
        )
    Console().print(table)
    ratios = {f"step growth, {name}": arm["step_ms_last"] / arm["step_ms_first"] for name, arm in arms.items()}
    document = {
        "minutes": len(wave) / audio.SAMPLE_RATE / 60,
        "wer": rates,
        "present": present,
        "arms": arms,
        "ratios": ratios,
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _listed(rates: dict[int, float]) -> str:
    return " ".join(f"{minute}: {rate:.1f}" for minute, rate in rates.items())


if __name__ == "__main__":
    main()
