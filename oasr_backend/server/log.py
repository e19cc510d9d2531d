"""Reading the server's log: what to show, and why a start failed."""

import re
from collections.abc import Iterator
from pathlib import Path

_RECORD = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w./-]+:\d+\]\s*(.*)")
# A line of our models, which log nothing below the level that was asked for; what is indented belongs to it.
_OWN = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z oasr [A-Z]+ ")
_OWN_JSON = re.compile(r'\{"time": "[^"]+", "level": "[A-Z]+", "logger": ')
_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL"}
_ALARM = re.compile(
    r"(?i)error:|traceback \(most recent call last\)|exception in thread|terminate called|signal \(\d+\)"
)
_NOTICE = re.compile(r"\w*Warning: ")
_NO_GPU = re.compile(
    r"(?i)pinned system memory|CudaDriverHelper has not been initialized|CUDA driver version is insufficient|"
    r"Failed to initialize NVML|DCGM unable to start|CUDA memory pool disabled"
)
_FAILED_MODEL = re.compile(r"\"?failed to load '([^']+)' version \d+: (.*)")
_FAILED_CONFIG = re.compile(r"\"?Poll failed for model directory '([^']+)': (.*)")
_FAILED_SERVICE = re.compile(r"\"?failed to start (\w+) service: (.*)")
_PLAIN_ERRORS = re.compile(r"^(?:(?:Internal|Invalid argument|Unavailable): )?(?:[\w.]*\b(?:ValueError|RuntimeError|"
                           r"CheckpointError|ConfigError|TritonModelException): )?")  # fmt: skip
_STACK = re.compile(r"(?:\\n|\n)\s*(?:\\n|\n)?At:(?:\\n|\n).*", re.DOTALL)


class LogFollower:
    """Hands out the lines of a growing log that matter: warnings, errors and what belongs to them.

    Without a GPU the server's complaints about it are left out; with `everything` nothing is.
    """

    def __init__(self, path: Path, *, gpu: bool, everything: bool = False, keep_below: int | None = None) -> None:
        """`keep_below`: empty the file, once read, when it has grown past so many bytes."""
        self._path = path
        self._filter = _Filter(gpu=gpu, everything=everything)
        self._keep_below = keep_below
        self._position = 0
        self._rest = b""

    def new_lines(self) -> list[str]:
        """The lines to show that were completed since the last call."""
        try:
            with open(self._path, "rb") as log:
                log.seek(self._position)
                data = log.read()
                self._position = log.tell()
        except OSError:
            return []
        if self._keep_below is not None and self._position > self._keep_below:
            with open(self._path, "r+b") as log:
                log.truncate(0)
            self._position = 0
        *lines, self._rest = (self._rest + data).split(b"\n")
        return list(self._filter.shown(line.decode(errors="replace").rstrip() for line in lines))


class _Filter:
    def __init__(self, *, gpu: bool, everything: bool = False) -> None:
        self._gpu = gpu
        self._everything = everything
        self._showing = False

    def shown(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            record = _RECORD.match(line)
            if _OWN.match(line) or _OWN_JSON.match(line):
                self._showing = True
            elif record:
                self._showing = record[1] != "I"
            elif _ALARM.search(line) or _NOTICE.search(line):
                self._showing = True
            harmless = not self._gpu and _NO_GPU.search(line)
            if harmless:
                self._showing = False
            if line and (self._everything or self._showing):
                yield line


def level_of(line: str) -> str | None:
    """The level of a line of the server's log that is text; None for one that is a JSON object of our models."""
    if _OWN_JSON.match(line):
        return None
    record = _RECORD.match(line)
    if record:
        return _LEVELS[record[1]]
    return "ERROR" if _ALARM.search(line) else "INFO"


def failure_reason(text: str) -> str:
    """Why the server whose log this is did not come up, in one line: every model that failed and its own words."""
    messages = [match[2] for match in map(_RECORD.match, text.splitlines()) if match and match[1] in "EF"]
    reasons: list[str] = []
    for message in messages:
        if match := _FAILED_MODEL.match(message):
            reasons.append(f"model {match[1]} failed to load: {_plain(match[2])}")
        elif match := _FAILED_CONFIG.match(message):
            reasons.append(f"the configuration of model {match[1]} is refused: {_plain(match[2])}")
        elif match := _FAILED_SERVICE.match(message):
            reasons.append(f"the {match[1]} service did not start: {_plain(match[2])}")
    if not reasons:
        lines = list(_Filter(gpu=False).shown(iter(text.splitlines())))
        reasons = [_plain(re.sub(_RECORD, r"\2", line)) for line in lines[-4:]]
    return "; ".join(dict.fromkeys(reasons)) or "its log gives no reason"


def tail(path: Path, lines: int) -> str:
    """The last lines of a file; empty when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 400 * lines))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def _plain(message: str) -> str:
    """The message without the call stack and the class names of ordinary errors."""
    plain = _PLAIN_ERRORS.sub("", _STACK.sub("", message.strip().removesuffix('"').strip()))
    if "is not healthy" in plain:
        plain += " (its process died while loading; the machine may be out of memory)"
    return " ".join(plain.replace("\\n", " ").split())
