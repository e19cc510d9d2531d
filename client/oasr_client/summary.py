"""What came of a whole run: counts, speed, latencies, error rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oasr_client.accuracy import ErrorRate, error_rates
from oasr_client.errors import MissingExtra

PERCENTILES = (50, 90, 95, 99)
_NAMED = 10


@dataclass
class Run:
    """The outcomes of a run, one after the other.

    Attributes:
        unit: what a latency belongs to: "file" or "chunk".
        normalizer: how texts are compared.
    """

    unit: str
    normalizer: str = "basic"
    files: int = 0
    audio_s: float = 0.0
    resumes: int = 0
    failed: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)

    def succeeded(self, text: str, audio_s: float, latencies_s: Sequence[float], reference: str | None) -> None:
        """Counts an utterance that was transcribed."""
        self.files += 1
        self.audio_s += audio_s
        self.latencies_s += latencies_s
        if reference is not None:
            self.pairs.append((reference, text))

    def failed_at(self, name: str) -> None:
        """Counts an utterance that failed."""
        self.files += 1
        self.failed.append(name)

    def summary(self, wall_s: float) -> "Summary":
        """The run, which took `wall_s` seconds."""
        rates: tuple[ErrorRate, ...] = ()
        note = ""
        if self.pairs:
            try:
                rates = error_rates(self.pairs, self.normalizer)
            except MissingExtra as error:
                note = str(error)
        latencies = (
            dict(zip(PERCENTILES, np.percentile(self.latencies_s, PERCENTILES).tolist())) if self.latencies_s else {}
        )
        return Summary(
            self.unit, self.files, tuple(self.failed), self.audio_s, wall_s, latencies, self.resumes, rates, note
        )


@dataclass(frozen=True)
class Summary:
    """A run in figures; `rtfx` is seconds of audio per second of the run, all utterances together.

    Attributes:
        unit: what a latency belongs to.
        files: utterances in all.
        failed: the names of those that failed.
        audio_s: seconds of audio of the others.
        wall_s: seconds the run took.
        latencies_s: latency in seconds by percentile.
        resumes: how often streams were resumed.
        rates: error rates, none without references.
        note: why there are no error rates although there are references, "" otherwise.
    """

    unit: str
    files: int
    failed: tuple[str, ...]
    audio_s: float
    wall_s: float
    latencies_s: Mapping[int, float]
    resumes: int
    rates: tuple[ErrorRate, ...]
    note: str

    @property
    def rtfx(self) -> float:
        """Seconds of audio per second."""
        return self.audio_s / self.wall_s if self.wall_s else 0.0

    @property
    def lines(self) -> list[str]:
        """For reading."""
        lines = [f"{self.files} files, {len(self.failed)} failed{self._names}"]
        lines.append(
            f"{self.audio_s / 3600:.3f} h of audio ({self.audio_s:.1f} s) in {self.wall_s:.1f} s: RTFx {self.rtfx:.1f}"
        )
        if self.latencies_s:
            told = ", ".join(f"p{at} {seconds * 1000:.0f} ms" for at, seconds in self.latencies_s.items())
            lines.append(f"latency of a {self.unit}: {told}")
        if self.resumes:
            lines.append(f"streams were resumed {self.resumes} times")
        lines += [rate.line for rate in self.rates]
        return lines + ([self.note] if self.note else [])

    @property
    def document(self) -> dict[str, Any]:
        """For programs."""
        document: dict[str, Any] = {
            "files": self.files,
            "failed": list(self.failed),
            "audio_seconds": round(self.audio_s, 3),
            "wall_seconds": round(self.wall_s, 3),
            "rtfx": round(self.rtfx, 2),
            "latency_of": self.unit,
            "latency_seconds": {f"p{at}": round(seconds, 5) for at, seconds in self.latencies_s.items()},
            "resumes": self.resumes,
        }
        for rate in self.rates:
            document["wer" if rate.unit == "word" else "cer"] = {
                "percent": round(rate.percent, 2),
                "errors": rate.errors,
                "substitutions": rate.substitutions,
                "deletions": rate.deletions,
                "insertions": rate.insertions,
                f"{rate.unit}s": rate.units,
                "utterances": rate.utterances,
                "normalizer": rate.normalizer,
            }
        return document

    @property
    def _names(self) -> str:
        if not self.failed:
            return ""
        rest = len(self.failed) - _NAMED
        return ": " + ", ".join(self.failed[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
