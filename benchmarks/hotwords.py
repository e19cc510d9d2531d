"""What hotwords do to real speech: the list is fixed on one half of the utterances and tried on the other.

    python -m benchmarks.hotwords --evalset DIR --json FILE [--set an4]

The list: words of three letters and more that plain beam search missed at least once in the first half. Per score:
recall of those words in the second half, how often one was heard that was not said, and the word error rate.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

import jiwer
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import Utterance, read_manifest
from oasr_backend.engine import ASREngine, EngineConfig
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client import audio

_SCORES = (0.5, 1.0, 2.0, 3.0)


def missed(references: list[str], texts: list[str]) -> list[str]:
    """Words of three letters and more that were said more often than heard in some utterance."""
    words: Counter[str] = Counter()
    for reference, text in zip(references, texts, strict=True):
        words += Counter(reference.split()) - Counter(text.split())
    return sorted(word for word in words if len(word) >= 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evalset", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--set", default="an4", dest="set_name")
    parser.add_argument("--dtype", default="auto")
    arguments = parser.parse_args()
    utterances = [one for one in read_manifest(arguments.evalset) if one.set_name == arguments.set_name]
    engine = ASREngine(
        EngineConfig(ckpt_dir=str(demo_checkpoint_dir()), dtype=arguments.dtype, decode_method="ctc_prefix_beam")
    )

    def heard(half: list[Utterance], mode: str, decoding: dict[str, object]) -> list[str]:
        waves: list[np.ndarray] = [audio.read(one.path) for one in half]
        outputs = engine.transcribe_outputs(waves, streaming=mode == "streaming", decoding=decoding)
        return [output.text for output in outputs]

    first, second = utterances[::2], utterances[1::2]
    phrases = missed([one.text for one in first], heard(first, "offline", {}))
    references = [one.text for one in second]
    said = [Counter(reference.split()) for reference in references]
    table = Table("mode", "score a token", "recall %", "heard but not said", "WER %")
    rows = []
    for mode in ("offline", "streaming"):
        for score in (0.0, *_SCORES):
            decoding = {"hotwords": phrases, "hotword_score": score} if score else {}
            texts = heard(second, mode, decoding)
            found = [Counter(text.split()) for text in texts]
            total = sum(one[word] for one in said for word in phrases)
            right = sum(min(a[word], b[word]) for a, b in zip(said, found, strict=True) for word in phrases)
            false = sum(max(0, b[word] - a[word]) for a, b in zip(said, found, strict=True) for word in phrases)
            wer = 100 * jiwer.wer(references, texts)
            rows.append({"mode": mode, "score": score, "recall": 100 * right / total, "false": false, "wer": wer})
            table.add_row(mode, f"{score:g}", f"{100 * right / total:.1f} of {total}", str(false), f"{wer:.2f}")
    console = Console()
    console.print(f"{len(phrases)} words: {', '.join(phrases)}")
    console.print(table)
    ratios = {f"{row['mode']}, {row['score']:g}, wer": row["wer"] for row in rows}
    document = {"phrases": phrases, "rows": rows, "ratios": ratios}
    arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
