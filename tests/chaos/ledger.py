"""What the cases have found, as a table and as JSON."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.reporting import commit
from oasr_backend.utils.host import processor_name


@dataclass(frozen=True)
class Finding:
    """One case.

    Attributes:
        case: what went wrong on purpose.
        amount: how often.
        texts: of neighbours, compared and right.
        longest_s: the longest that a request of a neighbour took.
        back_s: until every slot and page was free again, or the server was back.
        note: what else was seen.
    """

    case: str
    amount: str
    texts: int
    longest_s: float
    back_s: float
    note: str = ""


@dataclass
class Ledger:
    """Findings and slopes of one run.

    Attributes:
        slopes: rows of what was watched, with names of columns as in the table.
        series: the measurements behind them.
    """

    seed: int
    findings: list[Finding] = field(default_factory=list)
    slopes: list[dict[str, str]] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Called by a case that has passed."""
        self.findings.append(finding)

    def lines(self) -> list[str]:
        """Both tables in Markdown."""
        lines = [f"seed {self.seed}, commit {commit()}, {processor_name()}, {os.cpu_count()} cores", ""]
        rows = [
            [one.case, one.amount, str(one.texts), f"{one.longest_s:.1f}", f"{one.back_s:.1f}", one.note]
            for one in self.findings
        ]
        titles = ["case", "amount", "neighbours' texts", "longest request, s", "all back after, s", "seen"]
        lines += _table(titles, rows)
        if self.slopes:
            lines += ["", *_table(list(self.slopes[0]), [list(row.values()) for row in self.slopes])]
        return lines

    def write(self, path: Path) -> None:
        """As JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "seed": self.seed,
            "commit": commit(),
            "processor": processor_name(),
            "findings": [asdict(one) for one in self.findings],
            "slopes": self.slopes,
            "series": self.series,
        }
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)]
