"""The results of a long run, kept line by line, so that a run that was interrupted goes on where it was."""

import fcntl
import json
import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from oasr_client.errors import UsageError


class UnfinishedRun:
    """Results in `<output>.partial` while a run lasts, and in `output`, in the order of the inputs, when it is over.

    The first line of the partial file says what the run was asked for; each other line is the result of one input.
    Every line is written at once, so that a killed process loses none that was finished, and half a line at the end
    is dropped by the next run.

    Args:
        output: the file of the results; it must not be there yet.
        request: what was asked for; another run may only go on with the same.
        names: the inputs in order; they must differ.
    Raises:
        UsageError: the output is there already, the partial file is another run's or no run's, an input is there
            twice, or the file cannot be written.
    """

    def __init__(self, output: Path, request: Mapping[str, Any], names: Iterable[str]) -> None:
        self._output = output
        self._partial = output.with_name(output.name + ".partial")
        self._names = list(names)
        self._writing = threading.Lock()
        self._request = json.loads(json.dumps(request))
        twice = next((name for name, count in Counter(self._names).items() if count > 1), None)
        if twice is not None:
            raise UsageError(f"{twice} is there twice: a run that can be continued needs inputs that differ")
        if output.exists():
            raise UsageError(f"{output} is there already: name another file, or remove it to begin anew")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self._partial, "a", encoding="utf-8")  # noqa: SIM115 (closed by `__exit__`)
            self._lock()
            self.lines = self._read()
            if not self._partial.stat().st_size:
                self._write({"request": self._request})
        except OSError as error:
            raise UsageError(f"cannot write {self._partial}: {error.strerror or error}") from None

    @property
    def finished(self) -> frozenset[str]:
        """Names of the inputs that have a result."""
        return frozenset(self.lines)

    def add(self, name: str, document: Mapping[str, Any]) -> None:
        """Keeps the result of an input. Any thread may call it.

        Raises:
            UsageError: the file cannot be written any more.
        """
        with self._writing:
            try:
                self._write({"name": name, "line": document})
            except OSError as error:
                raise UsageError(f"cannot write {self._partial}: {error.strerror or error}") from None
            self.lines[name] = dict(document)

    def complete(self) -> None:
        """Puts the output in place of the partial file. Every input must have a result."""
        finished = self._output.with_name(self._output.name + ".new")
        with open(finished, "w", encoding="utf-8") as file:
            for name in self._names:
                file.write(json.dumps(self.lines[name], ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        finished.replace(self._output)
        self._partial.unlink()

    def __enter__(self) -> "UnfinishedRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another run is writing {self._partial}: wait for it, or name another output") from None

    def _read(self) -> dict[str, dict[str, Any]]:
        data = self._partial.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._partial, len(whole))
        rows = whole.splitlines()
        if not rows:
            return {}
        try:
            request, *results = map(json.loads, rows)
            found = {row["name"]: row["line"] for row in results}
            same = request["request"] == self._request
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{self._partial} was not written by a run of this command: remove it") from None
        if not same:
            raise UsageError(f"{self._partial} was begun with other options: repeat those, or remove it to begin anew")
        wanted = set(self._names)
        return {name: line for name, line in found.items() if name in wanted}
