import json
from pathlib import Path

import pytest

from oasr_client.errors import UsageError
from oasr_client.inputs import Utterance, collect


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.flac", "a.wav", "deep/c.MP3", "deep/notes.txt"):
        path = tmp_path / "clips" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return tmp_path / "clips"


def names(found: list[Utterance]) -> list[str]:
    return [Path(utterance.name).name for utterance in found]


def written(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_files_come_as_they_are_given_present_or_not() -> None:
    assert collect(["x/b.wav", "missing.flac"]) == [
        Utterance("x/b.wav", Path("x/b.wav"), target="b"),
        Utterance("missing.flac", Path("missing.flac"), target="missing"),
    ]


def test_a_folder_is_searched_for_audio(folder: Path) -> None:
    found = collect([str(folder)])
    assert names(found) == ["a.wav", "b.flac", "c.MP3"]
    assert [utterance.target for utterance in found] == ["a", "b", "deep/c"]
    assert all(utterance.reference is None and utterance.is_whole for utterance in found)


def test_globs(folder: Path) -> None:
    assert names(collect([f"{folder}/*.wav", f"{folder}/**/*.MP3"])) == ["a.wav", "c.MP3"]


def test_nothing_to_transcribe_is_told(tmp_path: Path) -> None:
    for source in (str(tmp_path), f"{tmp_path}/*.wav"):
        with pytest.raises(UsageError, match="nothing to transcribe"):
            collect([source])


def test_wav_scp_with_texts(folder: Path) -> None:
    scp = written(folder / "wav.scp", "utt1 a.wav", "", "utt2\tdeep/c.MP3", "spk/utt3 with space.wav", "u4 /abs/x.wav")
    written(folder / "text", "utt1 HELLO WORLD", "utt2", "other NOT THERE")
    found = collect([scp])
    assert [(utterance.name, utterance.reference, utterance.target) for utterance in found] == [
        ("utt1", "HELLO WORLD", "utt1"),
        ("utt2", "", "utt2"),
        ("spk/utt3", None, "spk/utt3"),
        ("u4", None, "u4"),
    ]
    assert [utterance.path for utterance in found] == [
        folder / "a.wav",
        folder / "deep/c.MP3",
        folder / "with space.wav",
        Path("/abs/x.wav"),
    ]
    # The folder that holds it is the same as it.
    assert collect([str(folder)]) == found


def test_paths_of_a_manifest_may_be_relative_to_the_working_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lists").mkdir()
    monkeypatch.chdir(folder)
    (found,) = collect([written(folder / "lists" / "wav.scp", "utt1 a.wav")])
    assert found.path == Path("a.wav")


def test_kaldi_segments_cut_the_recordings(folder: Path) -> None:
    scp = written(folder / "wav.scp", "rec a.wav")
    written(folder / "segments", "u1 rec 0.00 1.50", "u2 rec 1.5 4")
    written(folder / "text", "u2 TWO")
    first, second = collect([scp])
    assert (first.offset_s, first.duration_s, first.reference, first.is_whole) == (0.0, 1.5, None, False)
    assert (second.name, second.offset_s, second.duration_s, second.reference) == ("u2", 1.5, 2.5, "TWO")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("utt1 sox a.wav -t wav - |", "line 1: utt1 is the output of a command, which is not run here"),
        ("utt1 -", "is the output of a command"),
        ("utt1 raw.ark:1234", "lies in an archive"),
        ("utt1", "stands alone"),
        ("utt1 a.wav\nutt1 b.flac", "line 2: utt1 is there twice"),
        ("", "is empty"),
    ],
)
def test_what_a_wav_scp_may_not_hold(folder: Path, line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        collect([written(folder / "wav.scp", line)])


@pytest.mark.parametrize("line", ["u1 rec 0", "u1 other 0 1", "u1 rec x 1", "u1 rec 2 1", "u1 rec -1 1"])
def test_what_segments_may_not_hold(folder: Path, line: str) -> None:
    written(folder / "wav.scp", "rec a.wav")
    written(folder / "segments", line)
    with pytest.raises(UsageError, match="segments, line 1"):
        collect([str(folder)])


def test_a_nemo_manifest(folder: Path) -> None:
    rows = [
        {"audio_filepath": "a.wav", "duration": 3.5, "text": "HELLO"},
        {"audio_filepath": "b.flac", "offset": 1.5, "duration": 2.0, "text": ""},
        {"audio_filepath": "/abs/c.wav", "duration": None},
    ]
    found = collect([written(folder / "test.jsonl", *map(json.dumps, rows))])
    assert found == [
        Utterance("a.wav", folder / "a.wav", "HELLO", target="a"),
        Utterance("b.flac@1.5", folder / "b.flac", "", 1.5, 2.0, target="b@1.5"),
        Utterance("/abs/c.wav", Path("/abs/c.wav"), None, target="abs/c"),
    ]


def test_hugging_face_metadata(folder: Path) -> None:
    written(folder / "metadata.csv", "file_name,transcription", 'a.wav,"HELLO, WORLD"', "deep/c.MP3,")
    assert [(utterance.name, utterance.reference) for utterance in collect([str(folder)])] == [
        ("a.wav", "HELLO, WORLD"),
        ("deep/c.MP3", ""),
    ]
    (folder / "metadata.csv").unlink()
    written(folder / "deep" / "metadata.jsonl", json.dumps({"file_name": "c.MP3", "text": "HI"}))
    (found,) = collect([str(folder)])
    assert (found.path, found.reference) == (folder / "deep" / "c.MP3", "HI")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("m.jsonl", "{", "line 1: not JSON"),
        ("m.jsonl", "[1]", "not a JSON object"),
        ("m.jsonl", '{"text": "x"}', "neither audio_filepath nor file_name"),
        ("m.jsonl", '{"audio_filepath": "a.wav", "offset": -1}', "offset is -1"),
        ("m.jsonl", '{"audio_filepath": "a.wav", "offset": 1, "duration": "long"}', "duration is 'long'"),
        ("m.jsonl", "", "lists no audio"),
        ("m.csv", "path,text", "no column file_name"),
        ("m.csv", "file_name,text\n,x", "neither audio_filepath nor file_name"),
    ],
)
def test_broken_manifests_are_told_with_their_line(tmp_path: Path, name: str, content: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        collect([written(tmp_path / name, content)])


def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        collect([str(tmp_path / "wav.scp")])
    (tmp_path / "m.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        collect([str(tmp_path / "m.jsonl")])


def test_targets_stay_in_their_folder(folder: Path) -> None:
    scp = written(folder / "wav.scp", "../../evil a.wav", "/etc/evil b.flac", ".. a.wav")
    assert [utterance.target for utterance in collect([scp])] == ["evil", "etc/evil", "unnamed"]
