"""What a command is to transcribe: files, folders, globs and manifests as one list of utterances."""

import csv
import glob
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasr_client.errors import UsageError

AUDIO_SUFFIXES = frozenset(
    (
        ".wav",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".m4a",
        ".mp4",
        ".aac",
        ".aif",
        ".aiff",
        ".aifc",
        ".au",
        ".webm",
        ".mka",
        ".mkv",
        ".w64",
        ".caf",
    )
)
_TABLES = ("metadata.jsonl", "metadata.csv")
_TEXT_FIELDS = ("text", "transcription", "transcript", "sentence")
_REFERENCES = ("text", "trans.txt")
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Utterance:
    """Audio to transcribe.

    Attributes:
        name: what it is called in results: its path, or its id in a manifest.
        path: the audio file.
        reference: what is said in it, None where that is not known.
        offset_s: where in the file it begins, in seconds.
        duration_s: how long it is, in seconds; None: to the end of the file.
        target: where its output goes in a folder of outputs, relative and without a suffix.
    """

    name: str
    path: Path
    reference: str | None = None
    offset_s: float = 0.0
    duration_s: float | None = None
    target: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its file."""
        return not self.offset_s and self.duration_s is None


def collect(sources: Iterable[str]) -> list[Utterance]:
    """The utterances of all sources, in order; a folder's in the order of their paths.

    A source is an audio file; a folder (with `metadata.csv`, `metadata.jsonl` or `wav.scp` in it, what they list, else
    every audio file below it); a glob pattern; a Kaldi `wav.scp`, with `text` and `segments` beside it; a JSON-lines
    manifest with `audio_filepath` (NeMo) or `file_name` (Hugging Face); a `metadata.csv`.

    Raises:
        UsageError: a pattern or folder without audio, a manifest that cannot be read, two utterances of one name in a
            manifest. A missing audio file is not looked for here.
    """
    found: list[Utterance] = []
    for source in sources:
        found += _of(source)
    return found


def _of(source: str) -> list[Utterance]:
    path = Path(source)
    if path.is_dir():
        return _folder(path)
    if not path.exists() and _GLOB.search(source):
        matches = sorted(glob.glob(source, recursive=True))
        files = [Path(match) for match in matches if Path(match).is_file()]
        if not files:
            raise UsageError(f"no file matches {source}: nothing to transcribe")
        return [_file(file) for file in files]
    if path.suffix == ".scp":
        return _kaldi(path)
    if path.suffix in (".jsonl", ".json"):
        return _json_lines(path)
    if path.suffix == ".csv":
        return _table(path)
    return [_file(path)]


def _file(path: Path) -> Utterance:
    return Utterance(str(path), path, target=path.stem)


def _folder(folder: Path) -> list[Utterance]:
    tables = sorted(path for name in _TABLES for path in folder.rglob(name))
    if tables:
        return [utterance for path in tables for utterance in (_table if path.suffix == ".csv" else _json_lines)(path)]
    if (folder / "wav.scp").is_file():
        return _kaldi(folder / "wav.scp")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file())
    if not files:
        raise UsageError(f"no audio files in {folder}: nothing to transcribe")
    return [Utterance(str(path), path, target=str(path.relative_to(folder).with_suffix(""))) for path in files]


def _kaldi(path: Path) -> list[Utterance]:
    """`id path` a line; with `segments` beside it, `id recording start end` a line, the recordings in parts."""
    recordings: dict[str, Path] = {}
    for where, name, rest in _pairs(path):
        if rest.endswith("|") or rest == "-":
            raise UsageError(f"{where}: {name} is the output of a command, which is not run here; write files first")
        if re.search(r"\.ark:\d+$", rest):
            raise UsageError(f"{where}: {name} lies in an archive, which cannot be read here; write files first")
        recordings[name] = _beside(path, rest)
    references: dict[str, str] = {}
    for beside in _REFERENCES:
        if (path.parent / beside).is_file():
            references = {name: text for _, name, text in _pairs(path.parent / beside, empty=True)}
            break
    segments = path.parent / "segments"
    if not segments.is_file():
        return [Utterance(name, file, references.get(name), target=_safe(name)) for name, file in recordings.items()]
    found = []
    for where, name, rest in _pairs(segments):
        fields = rest.split()
        if len(fields) != 3 or fields[0] not in recordings:
            raise UsageError(f"{where}: not of the form `id recording start end` with a recording of {path.name}")
        begin = _seconds(fields[1], where, "start")
        end = _seconds(fields[2], where, "end")
        if end <= begin:
            raise UsageError(f"{where}: {name} ends at {end:g} s, which is not behind its start at {begin:g} s")
        found.append(Utterance(name, recordings[fields[0]], references.get(name), begin, end - begin, _safe(name)))
    return found


def _json_lines(path: Path) -> list[Utterance]:
    return _rows(path, _json_objects(path))


def _table(path: Path) -> list[Utterance]:
    reader = csv.DictReader(_lines(path))
    if "file_name" not in (reader.fieldnames or ()):
        raise UsageError(f"{path}: the table has no column file_name")
    return _rows(path, ((f"{path}, line {reader.line_num}", row) for row in reader))


def _rows(path: Path, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Utterance]:
    found = []
    for where, row in rows:
        name = row.get("audio_filepath") or row.get("file_name")
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where}: neither audio_filepath nor file_name says which file is meant")
        offset = _seconds(row.get("offset") or 0, where, "offset")
        # A duration that goes with no offset describes the file; it does not cut it.
        duration = _seconds(row["duration"], where, "duration") if offset and row.get("duration") else None
        text = next((row[field] for field in _TEXT_FIELDS if isinstance(row.get(field), str)), None)
        label = name if not offset else f"{name}@{offset:g}"
        target = _safe(str(Path(name).with_suffix("")) + (f"@{offset:g}" if offset else ""))
        found.append(Utterance(label, _beside(path, name), text, offset, duration, target))
    if not found:
        raise UsageError(f"{path} lists no audio: nothing to transcribe")
    return found


def _json_objects(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except ValueError:
            raise UsageError(f"{where}: not JSON; a manifest holds one object a line") from None
        if not isinstance(row, dict):
            raise UsageError(f"{where}: not a JSON object; a manifest holds one object a line")
        yield where, row


def _pairs(path: Path, empty: bool = False) -> list[tuple[str, str, str]]:
    """Lines `key value` as (place, key, value); `empty`: the value may be missing."""
    found, seen = [], set()
    for number, line in enumerate(_lines(path), 1):
        fields = line.split(maxsplit=1)
        where = f"{path}, line {number}"
        if not fields:
            continue
        if len(fields) < 2 and not empty:
            raise UsageError(f"{where}: {fields[0]} stands alone; a line holds an id and what belongs to it")
        if fields[0] in seen:
            raise UsageError(f"{where}: {fields[0]} is there twice; ids must differ")
        seen.add(fields[0])
        found.append((where, fields[0], fields[1].strip() if len(fields) > 1 else ""))
    if not found:
        raise UsageError(f"{path} is empty: nothing to transcribe")
    return found


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UsageError(f"no such file: {path}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text: it cannot be a manifest") from None


def _beside(manifest: Path, name: str) -> Path:
    """A path of a manifest: relative to it, or, where only that exists, to the working directory."""
    beside = manifest.parent / name
    return Path(name) if not beside.exists() and Path(name).exists() else beside


def _seconds(value: object, where: str, name: str) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(f"{where}: {name} is {value!r}; it must be seconds, 0 or more")
    return number


def _safe(name: str) -> str:
    """A name as a relative path that stays in its folder."""
    parts = [part for part in Path(name).parts if part not in ("/", "..", ".")]
    return str(Path(*parts)) if parts else "unnamed"
