"""Runs that are interrupted and go on."""

import json
from pathlib import Path

import pytest

from oasr_client.errors import UsageError
from oasr_client.unfinished import UnfinishedRun

NAMES = ["b.wav", "a.wav", "c.wav"]


def line(name: str) -> dict[str, str]:
    # U+2028 ends a line for some readers, but not for JSON lines.
    return {"file": name, "text": f"\u2028 {name}"}


def test_lines_are_in_the_order_of_the_inputs_when_all_is_done(tmp_path: Path) -> None:
    output = tmp_path / "deep" / "out.jsonl"
    with UnfinishedRun(output, {}, NAMES) as run:
        for name in sorted(NAMES):
            run.add(name, line(name))
        assert not output.exists()
        run.complete()
    assert [json.loads(row)["file"] for row in output.read_bytes().splitlines()] == NAMES
    assert [path.name for path in output.parent.iterdir()] == ["out.jsonl"]


def test_what_was_finished_stays_finished(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with UnfinishedRun(output, {"n_best": 3}, NAMES) as run:
        run.add("a.wav", line("a.wav"))
    with UnfinishedRun(output, {"n_best": 3}, [*NAMES, "d.wav"]) as run:
        assert run.finished == {"a.wav"}
        assert run.lines["a.wav"] == line("a.wav")


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_half_a_line_is_dropped(tmp_path: Path, lost: int) -> None:
    output = tmp_path / "out.jsonl"
    with UnfinishedRun(output, {}, NAMES) as run:
        run.add("a.wav", line("a.wav"))
        run.add("b.wav", line("b.wav"))
    partial = tmp_path / "out.jsonl.partial"
    partial.write_bytes(partial.read_bytes()[:-lost])
    with UnfinishedRun(output, {}, NAMES) as run:
        assert run.finished == {"a.wav"}
        for name in ("b.wav", "c.wav"):
            run.add(name, line(name))
        run.complete()
    assert [json.loads(row) for row in output.read_bytes().splitlines()] == [line(name) for name in NAMES]


def test_other_options_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with UnfinishedRun(output, {"n_best": 3}, NAMES) as run:
        run.add("a.wav", line("a.wav"))
    with pytest.raises(UsageError, match="other options"):
        UnfinishedRun(output, {"n_best": 4}, NAMES)


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        UnfinishedRun(output, {}, NAMES)
    assert output.read_text() == "mine"


@pytest.mark.parametrize("text", ["no json\n", "[]\n", '{"request": {}}\n{"name": 1}\n', "7\n"])
def test_a_strange_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.jsonl.partial").write_text(text)
    with pytest.raises(UsageError, match="not written by a run"):
        UnfinishedRun(tmp_path / "out.jsonl", {}, NAMES)


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with UnfinishedRun(output, {}, NAMES), pytest.raises(UsageError, match="another run"):
        UnfinishedRun(output, {}, NAMES)


def test_inputs_must_differ(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.wav is there twice"):
        UnfinishedRun(tmp_path / "out.jsonl", {}, ["a.wav", "b.wav", "a.wav"])
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_cannot_be_kept_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    with UnfinishedRun(tmp_path / "out.jsonl", {}, NAMES) as run:
        run._file.close()
        run._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115 (closed by the run)
        with pytest.raises(UsageError, match=r"cannot write .*: No space left on device"):
            run.add("a.wav", line("a.wav"))
        run._file = open("/dev/null", "a", encoding="utf-8")  # noqa: SIM115 (closed by the run)
        assert not run.finished
