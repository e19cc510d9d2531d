"""Input data for perf_analyzer."""

import base64
import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from benchmarks.perf_analyzer.inputs import sequence, utterances, write_inputs
from benchmarks.perf_analyzer.install import link_libraries

CLIPS = [np.full(9000, 100, np.int16), np.full(16000, -200, np.int16)]


def test_utterances_are_one_clip_and_then_several() -> None:
    assert [len(one) for one in utterances(CLIPS, 5)] == [9000, 16000, 25000, 25000, 9000]


@pytest.mark.parametrize("name", ["PCM", "WAV"])
def test_a_sequence_holds_all_samples_in_chunks(name: str) -> None:
    rows = sequence(CLIPS[1], 640, name, pad=False)
    assert [row[name]["shape"] for row in rows] == [[10240], [5760]]
    content = np.concatenate([row[name]["content"] for row in rows])
    scale = 1 if name == "PCM" else 32768
    assert np.array_equal(np.rint(content * scale), CLIPS[1])


def test_padded_chunks_have_one_length_and_tell_the_true_one() -> None:
    rows = sequence(CLIPS[1], 640, "WAV", pad=True)
    assert [row["WAV"]["shape"] for row in rows] == [[10240], [10240]]
    assert [row["WAV_LENS"]["content"] for row in rows] == [[10240], [5760]]


def test_the_three_files_hold_the_same_utterances(tmp_path: Path) -> None:
    paths = write_inputs(tmp_path / "new", utterances(CLIPS, 3), 640, "PCM", pad=False)
    streaming, offline, files = (json.loads(path.read_text())["data"] for path in paths)
    assert [path.name for path in paths] == ["oasr_streaming.json", "oasr_offline.json", "oasr_transcribe.json"]
    for chunks, whole, packed in zip(streaming, offline, files, strict=True):
        samples = whole["PCM"]["content"]
        assert [one for chunk in chunks for one in chunk["PCM"]["content"]] == samples
        data = base64.b64decode(packed["AUDIO"]["b64"])
        assert struct.unpack("<I", data[:4])[0] == len(data) - 4
        assert soundfile.read(io.BytesIO(data[4:]), dtype="int16")[0].tolist() == samples


def test_libraries_are_linked_by_the_names_that_the_program_uses(tmp_path: Path) -> None:
    source, target = tmp_path / "libs", tmp_path / "perf"
    source.mkdir()
    target.mkdir()
    for name in ("libb64-1a2b.so.0d", "libcudart-3c4d.so.12.6.77"):
        (source / name).write_text(name)
    for _ in range(2):
        link_libraries(source, target)
    assert (target / "libb64.so.0d").read_text() == "libb64-1a2b.so.0d"
    assert (target / "libcudart.so.12").read_text() == "libcudart-3c4d.so.12.6.77"


def test_a_missing_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="libb64"):
        link_libraries(tmp_path, tmp_path)
