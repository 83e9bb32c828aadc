"""Writes log lines to standard error: text for people, or JSON with one object per line for programs."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

LOG_FORMATS = ("text", "json")

# Attributes of every record; any other was passed as `extra`.
_USUAL = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def setup_logging(level: str | int = "INFO", log_format: str = "text", stream: TextIO | None = None) -> None:
    """Replaces any earlier logging setup of this process."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines())
    root = logging.getLogger()
    for other in root.handlers[:]:
        root.removeHandler(other)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.captureWarnings(True)


def extras_of(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class JsonLines(logging.Formatter):
    """Writes the keys `time`, `level`, `logger`, `message`, those of `extra`, and `exception` if there is
    one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            **extras_of(record),
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return _dump(line)
        except TypeError:  # a lone surrogate, or an integer of more than 64 bits
            return _dump({str(key): _plain(value) for key, value in line.items()})


class TextLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(time)s %(levelname)s %(name)s: %(message)s%(extras)s")

    def format(self, record: logging.LogRecord) -> str:
        extras = extras_of(record)
        shown = "".join(f" {name}={value}" for name, value in extras.items())
        return super().format(
            logging.makeLogRecord(vars(record) | {"time": _time_of(record), "extras": shown})
        )


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _dump(line: dict[str, Any]) -> str:
    return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _plain(value: Any) -> str:
    return (value if isinstance(value, str) else repr(value)).encode(errors="backslashreplace").decode()
