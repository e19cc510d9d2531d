"""What the launcher says: to people as sentences, to collectors of logs as JSON."""

import logging
import sys

from oasr_backend.server.log import level_of
from oasr_backend.utils.log_lines import JsonFormatter

_launcher = logging.getLogger("oasr.serve")
# Lines that the server wrote; as JSON they carry its own level.
_server = logging.getLogger("tritonserver")

_REPORT = "oasr_report"


class _Sentence(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        if getattr(record, _REPORT, False):
            return f"  {record.getMessage()}"
        warning = "warning: " if record.levelno == logging.WARNING else ""
        return f"oasr serve: {warning}{record.getMessage()}"


def show_messages(log_format: str) -> None:
    """Sends the launcher's progress to standard output and all else to standard error; JSON with `json`."""
    is_json = log_format == "json"
    own = JsonFormatter() if is_json else _Sentence()
    progress, complaints, relayed = (logging.StreamHandler(one) for one in (sys.stdout, sys.stderr, sys.stderr))
    progress.addFilter(lambda record: record.levelno <= logging.INFO)
    complaints.setLevel(logging.WARNING)
    for handler in (progress, complaints):
        handler.setFormatter(own)
    relayed.setFormatter(_Relayed(is_json))
    for log, handlers in ((_launcher, (progress, complaints)), (_server, (relayed,))):
        log.handlers = list(handlers)
        log.setLevel(logging.INFO)
        log.propagate = False


def show_report_line(line: str) -> None:
    """A line of a report on what is about to be served."""
    _launcher.info("%s", line, extra={_REPORT: True})


def show_server_line(line: str) -> None:
    """Passes a line of the server's log on."""
    level = level_of(line)
    _server.log(logging.getLevelName(level or "INFO"), "%s", line)


class _Relayed(logging.Formatter):
    """The line as it is; as JSON, unless it is that already."""

    def __init__(self, is_json: bool):
        super().__init__()
        self._wrap = JsonFormatter() if is_json else None

    def format(self, record: logging.LogRecord) -> str:
        line = record.getMessage()
        return line if self._wrap is None or level_of(line) is None else self._wrap.format(record)
