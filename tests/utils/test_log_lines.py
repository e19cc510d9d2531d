"""Lines of the log: one an event, whatever a client put into it."""

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from oasr_backend.errors import ConfigError
from oasr_backend.utils.log_lines import FORMATS, LogSettings, event, formatter

EVIL = 'a"b\n2026-01-01T00:00:00.000Z oasr ERROR all is lost\r\x1b[2J\u2028{"level": "ERROR"}\ud800'


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    log = logging.Logger("oasr_backend.here", logging.INFO)
    yield log
    log.handlers.clear()


def written(log: logging.Logger, kind: str) -> Lines:
    lines = Lines()
    lines.setFormatter(formatter(kind, model="oasr_streaming"))
    log.addHandler(lines)
    return lines


def test_a_json_line_holds_all_fields(log: logging.Logger) -> None:
    lines = written(log, "json")
    event(log, logging.INFO, "stream opened", correlation_id=7, nothing=None, options=["trace"])
    document = json.loads(lines.texts[0])
    time = document.pop("time")
    assert len(time) == len("2026-01-31T12:00:00.000Z") and time.endswith("Z") and time[10] == "T"
    assert document == {
        "level": "INFO",
        "logger": "oasr_backend.here",
        "model": "oasr_streaming",
        "message": "stream opened",
        "correlation_id": 7,
        "options": ["trace"],
    }


def test_a_text_line_holds_the_same(log: logging.Logger) -> None:
    lines = written(log, "text")
    event(log, logging.WARNING, "stream reaped", correlation_id="x y")
    rest = lines.texts[0].partition(" ")[2]
    assert rest == 'oasr WARNING oasr_streaming oasr_backend.here: stream reaped {"correlation_id": "x y"}'


@pytest.mark.parametrize("kind", FORMATS)
def test_no_client_can_begin_a_line(log: logging.Logger, kind: str) -> None:
    lines = written(log, kind)
    event(log, logging.INFO, "stream opened", correlation_id=EVIL)
    log.warning("from %s", EVIL)
    try:
        raise RuntimeError(EVIL)
    except RuntimeError:
        log.exception("it failed")
    for text in lines.texts:
        first, *below = text.splitlines()
        assert all(line.startswith("    ") for line in below)
        assert first.isprintable()
        text.encode()
    assert kind == "text" or json.loads(lines.texts[0])["correlation_id"] == EVIL


def test_an_exception_is_one_field(log: logging.Logger) -> None:
    lines = written(log, "json")
    try:
        raise RuntimeError("why")
    except RuntimeError:
        log.error("it failed", exc_info=sys.exc_info())
    (text,) = lines.texts
    assert "\n" not in text
    assert "RuntimeError: why" in json.loads(text)["exception"]


@pytest.mark.parametrize(("name", "value"), [("log_level", "LOUD"), ("log_format", "xml")])
def test_an_unknown_level_or_format_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is '{value}'; use"):
        LogSettings(**{name: value})


def test_below_the_level_nothing_is_made(log: logging.Logger) -> None:
    lines = written(log, "json")
    event(log, logging.DEBUG, "nothing")
    assert lines.texts == []
