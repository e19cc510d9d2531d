"""Long recordings offline: word error rate and times against the pieces, memory and speed.

    python -m benchmarks.long_form --evalset DIR --json FILE [--minutes 10] [--set an4]

The recording is the evaluation set's utterances, joined in a fixed random order and repeated. `resident` is the peak
of the whole process, the recording itself twice in it.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import jiwer
import numpy as np
from rich.console import Console

from benchmarks.accuracy import read_manifest
from benchmarks.joined import Placed, by_time, recording
from oasr_backend.engine import ASREngine, EngineConfig, RequestOutput
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import audio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--set", default="an4", dest="set_name")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--window", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of silence between utterances")
    arguments = parser.parse_args()
    utterances = [one for one in read_manifest(arguments.evalset) if one.set_name == arguments.set_name]
    wave, placed = recording(utterances, arguments.minutes, arguments.pause)
    engine = ASREngine(
        EngineConfig(
            ckpt_dir=str(demo_checkpoint_dir()),
            dtype=arguments.dtype,
            service_mode="offline",
            long_form=True,
            long_form_window_seconds=arguments.window,
        )
    )
    engine.warm_up()
    started = time.perf_counter()
    (whole,) = engine.transcribe_outputs([wave], streaming=False, decoding={"word_timestamps": True})
    seconds = time.perf_counter() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pieces = [wave[round(one.start * audio.SAMPLE_RATE) : round(one.end * audio.SAMPLE_RATE)] for one in placed]
    alone = engine.transcribe_outputs(pieces, streaming=False, decoding={"word_timestamps": True})

    references = [one.text for one in placed]
    in_whole = by_time(whole, placed)
    wer = {
        "whole, by piece": 100 * jiwer.wer(references, [in_whole[one] for one in placed]),
        "whole": 100 * jiwer.wer(" ".join(references), whole.text),
        "pieces": 100 * jiwer.wer(references, [output.text for output in alone]),
    }
    empty = sum(not in_whole[one] and bool(output.text) for one, output in zip(placed, alone, strict=True))
    shifts = time_shifts(whole, placed, alone, engine.seconds_per_frame)
    document = {
        "minutes": whole.audio_seconds / 60,
        "wer": wer,
        "pieces": len(placed),
        "pieces_missing": empty,
        "seconds": seconds,
        "times_real_time": whole.audio_seconds / seconds,
        "resident_mib_peak": peak_mib,
        "frames_apart": {
            "words": len(shifts),
            "median": float(np.median(shifts)),
            "p99": float(np.percentile(shifts, 99)),
            "max": float(np.max(shifts)),
        },
        "ratios": {"wer_above_pieces": wer["whole, by piece"] - wer["pieces"], "resident_gib": peak_mib / 1024},
    }
    Console().print_json(json.dumps(document))
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def time_shifts(
    whole: RequestOutput, placed: list[Placed], alone: list[RequestOutput], seconds_per_frame: float
) -> list[float]:
    """Frames between a word's start in the recording and in its piece, for pieces whose texts are equal in both."""
    shifts: list[float] = []
    words = list(whole.words or ())
    for one, output in zip(placed, alone, strict=True):
        inside = [word for word in words if one.start <= (word.start + word.end) / 2 < one.end]
        if [word.word for word in inside] == [word.word for word in output.words or ()]:
            shifts += [
                abs(word.start - one.start - own.start) / seconds_per_frame
                for word, own in zip(inside, output.words or (), strict=True)
            ]
    return shifts


if __name__ == "__main__":
    main()
