"""What a benchmark says: tables on the terminal, the same and its circumstances as JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.environment import WAIT_VARIABLES
from benchmarks.targets import TARGETS
from oasr_backend.utils.host import processor_name

Cell = str | int | float | None
Row = Mapping[str, Cell]

_INSTRUCTIONS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True)
class Report:
    """The outcome of one command. The rows of a table have the same columns."""

    benchmark: str
    dtype: str
    threads: int
    settings: Mapping[str, object]
    tables: Mapping[str, Sequence[Row]]
    ratios: Mapping[str, float]
    notes: Sequence[str] = ()

    def as_document(self) -> dict[str, object]:
        """What is written as JSON; `ratios` is flat, `targets` says which bounds its numbers meet."""
        return {
            "benchmark": self.benchmark,
            "arguments": sys.argv[1:],
            "commit": commit(),
            "processor": processor_name(),
            "instructions": instructions(),
            "torch": torch.__version__,
            "threads": self.threads,
            "dtype": self.dtype,
            "load_average": os.getloadavg()[0],
            "environment": {name: os.environ[name] for name in WAIT_VARIABLES if name in os.environ},
            "settings": dict(self.settings),
            "tables": {title: [dict(row) for row in rows] for title, rows in self.tables.items()},
            "ratios": dict(self.ratios),
            "targets": {
                name: {"bound": TARGETS[name].bound, "at_most": TARGETS[name].at_most, "met": TARGETS[name].is_met(one)}
                for name, one in self.ratios.items()
                if name in TARGETS
            },
            "notes": list(self.notes),
        }


def publish(report: Report, path: Path) -> None:
    """Prints the tables and writes the JSON."""
    console = Console(width=max(120, Console().width))
    document = report.as_document()
    console.print(
        f"{report.benchmark} at {document['commit']}, {document['processor']} ({', '.join(instructions())}), "
        f"torch {torch.__version__}, {report.threads} threads, {report.dtype}, {document['environment']}, "
        f"load average {document['load_average']:.1f}"
    )
    for title, rows in report.tables.items():
        console.print(table(title, rows))
    console.print(table("ratios", [_against_target(name, value) for name, value in report.ratios.items()]))
    for note in report.notes:
        console.print(note)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left")
    for index, name in enumerate(rows[0] if rows else ()):
        made.add_column(name, justify="left" if index == 0 else "right")
    for row in rows:
        made.add_row(*map(shown, row.values()))
    return made


def shown(value: Cell) -> str:
    """Three significant digits, and whole numbers whole."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _against_target(name: str, value: float) -> Row:
    target = TARGETS.get(name)
    verdict = "" if target is None else "met" if target.is_met(value) else "missed"
    return {"ratio": name, "value": value, "target": "" if target is None else str(target), "": verdict}


def commit() -> str:
    """The commit of this tree, with a + when files differ from it; empty outside of a repository."""
    here = Path(__file__).parent
    try:
        name = _git(here, "rev-parse", "--short", "HEAD")
        return name + ("+" if _git(here, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def instructions() -> list[str]:
    """Which of the instruction sets that decide the speed of matrix products the processor has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return [name for name in _INSTRUCTIONS if name in flags]
