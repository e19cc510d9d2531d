"""Input data for perf_analyzer, made of the bundled clips or of your own.

    python -m benchmarks.perf_analyzer.inputs --out DIR [--clips INPUT...] [--utterances 12] [--chunk-ms 640]
        [--tensor PCM|WAV] [--pad]

Writes `oasr_streaming.json` (one sequence of chunks an utterance), `oasr_offline.json` (whole utterances) and
`oasr_transcribe.json` (their files, FLAC). An utterance is one clip or several in a row, so that lengths differ.
"""

import argparse
import base64
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from oasr_backend.utils.paths import assets_dir
from oasr_client import audio
from oasr_client.inputs import collect

Tensor = dict[str, Any]
Request = dict[str, Any]

TENSORS = ("PCM", "WAV")


def utterances(clips: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """So many utterances, [samples] int16: from each clip on, first one clip, then two in a row, and so on."""
    made = []
    for number in range(count):
        first, length = number % len(clips), 1 + number // len(clips) % len(clips)
        made.append(np.concatenate([clips[(first + step) % len(clips)] for step in range(length)]))
    return made


def tensor(samples: np.ndarray, name: str) -> Tensor:
    """Samples [N] int16 as PCM, or WAV in [-1, 1]; perf_analyzer adds the batch dimension itself."""
    content = samples.tolist() if name == "PCM" else np.round(audio.to_float(samples), 6).tolist()
    return {"content": content, "shape": [len(samples)]}


def sequence(samples: np.ndarray, chunk_ms: float, name: str, pad: bool) -> list[Request]:
    """The chunks of an utterance; with `pad` all of one length, the true one in WAV_LENS, as WeNet's clients send."""
    requests = []
    size = round(chunk_ms * audio.SAMPLE_RATE / 1000)
    for chunk in audio.chunks(samples, chunk_ms):
        if pad:
            padded = np.pad(chunk, (0, size - len(chunk)))
            requests.append({name: tensor(padded, name), "WAV_LENS": {"content": [len(chunk)], "shape": [1]}})
        else:
            requests.append({name: tensor(chunk, name)})
    return requests


def file_of(samples: np.ndarray) -> Request:
    """An utterance as a FLAC file."""
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, audio.SAMPLE_RATE, format="FLAC")
    # perf_analyzer sends what base64 holds as it is, and Triton's strings begin with their length.
    data = buffer.getvalue()
    serialized = struct.pack("<I", len(data)) + data
    return {"AUDIO": {"b64": base64.b64encode(serialized).decode("ascii"), "shape": [1]}}


def write_inputs(folder: Path, parts: Sequence[np.ndarray], chunk_ms: float, name: str, pad: bool) -> list[Path]:
    """Writes the three files and returns their paths."""
    data: dict[str, list[Any]] = {
        "oasr_streaming": [sequence(part, chunk_ms, name, pad) for part in parts],
        "oasr_offline": [{name: tensor(part, name)} for part in parts],
        "oasr_transcribe": [file_of(part) for part in parts],
    }
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for model, rows in data.items():
        paths.append(folder / f"{model}.json")
        paths[-1].write_text(json.dumps({"data": rows}) + "\n", encoding="ascii")
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--clips", nargs="+", default=[str(assets_dir() / "clips")], help="files, folders, manifests")
    parser.add_argument("--utterances", type=int, default=12)
    parser.add_argument("--chunk-ms", type=float, default=640.0)
    parser.add_argument("--tensor", choices=TENSORS, default="PCM", help="int16 or float32")
    parser.add_argument("--pad", action="store_true", help="last chunks padded to full length, with WAV_LENS")
    arguments = parser.parse_args()
    if arguments.utterances < 1 or arguments.chunk_ms < 1:
        parser.error("--utterances and --chunk-ms must be 1 or more")
    clips = [
        audio.to_pcm(audio.read(one.path, offset_s=one.offset_s, duration_s=one.duration_s))
        for one in collect(arguments.clips)
    ]
    parts = utterances(clips, arguments.utterances)
    for path in write_inputs(arguments.out, parts, arguments.chunk_ms, arguments.tensor, arguments.pad):
        print(path)


if __name__ == "__main__":
    main()
