"""The lines of our logs: one for every event, as JSON or as text, with the fields of the event."""

import json
import logging
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TextIO

from oasr_backend.errors import ConfigError

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FORMATS = ("text", "json")
# Attribute of a record that holds the fields of an event.
_FIELDS = "oasr_fields"


@dataclass(frozen=True)
class LogSettings:
    """What is logged, and how."""

    log_level: str = "WARNING"
    """DEBUG, INFO, WARNING, ERROR or CRITICAL; the life of every stream is told at INFO."""
    log_format: str = "text"
    """`text`, or `json`: every line is one JSON object."""
    log_text: bool = False
    """Recognised text and clients' options may stand in the log."""

    def __post_init__(self) -> None:
        if self.log_level not in LEVELS:
            raise ConfigError(f"log_level is {self.log_level!r}; use DEBUG, INFO, WARNING, ERROR or CRITICAL")
        if self.log_format not in FORMATS:
            raise ConfigError(f"log_format is {self.log_format!r}; use text or json")


def event(log: logging.Logger, level: int, name: str, **fields: Any) -> None:
    """Logs an event: its name in words, and its fields as they are. None stands for what does not apply."""
    if log.isEnabledFor(level):
        given = {key: value for key, value in fields.items() if value is not None}
        log.log(level, "%s", name, extra={_FIELDS: given})


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, what is the same in all lines, message, fields, exception."""

    def __init__(self, **constant: str):
        super().__init__()
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            **self._constant,
            "message": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return as_json(document)


class TextFormatter(logging.Formatter):
    """`TIME oasr LEVEL MODEL LOGGER: message {fields}`: one line, and below it an exception, indented.

    What a client sent cannot begin a line of its own: line breaks are escaped, and fields are JSON.
    """

    def __init__(self, **constant: str):
        super().__init__()
        self._constant = constant

    def format(self, record: logging.LogRecord) -> str:
        where = " ".join([*self._constant.values(), record.name])
        line = f"{_time(record)} oasr {record.levelname} {where}: {_escaped(record.getMessage())}"
        fields = getattr(record, _FIELDS, {})
        if fields:
            line += f" {as_json(fields)}"
        if record.exc_info:
            below = self.formatException(record.exc_info).splitlines()
            line = "\n".join([line, *(f"    {_escaped(row)}" for row in below)])
        return line


def formatter(kind: str, **constant: str) -> logging.Formatter:
    """The formatter of a `log_format`; `constant` stands in every line."""
    return JsonFormatter(**constant) if kind == "json" else TextFormatter(**constant)


def configure_logging(settings: LogSettings, model: str, stream: TextIO | None = None) -> None:
    """Sends the log of this process to `stream`, standard error by default; again: changes nothing."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter(settings.log_format, model=model))
    logging.basicConfig(level=settings.log_level, handlers=[handler])


def as_json(document: dict[str, Any]) -> str:
    """One line, whatever the document holds."""
    return json.dumps(document, ensure_ascii=True, default=str)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _escaped(text: str) -> str:
    """Text without control characters and line breaks of any alphabet."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
