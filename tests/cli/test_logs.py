"""Log lines, as a program and as a person reads them."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from headrace.cli.logs import LOG_FORMATS, setup_logging


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def logged(log_format: str, level: str | int = "info") -> tuple[io.StringIO, logging.Logger]:
    stream = io.StringIO()
    setup_logging(level, log_format, stream)
    for handler in logging.getLogger().handlers:  # not what a thread of another test has to say
        handler.addFilter(lambda record: record.name in ("headrace.test", "py.warnings"))
    return stream, logging.getLogger("headrace.test")


def test_json_lines() -> None:
    stream, log = logged("json")
    log.warning("%d segments\nin %s", 3, "x", extra={"collection": "orders", "size": 2**70, "path": object})
    log.info("second")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "3 segments\nin x"
    assert (first["level"], first["logger"], first["collection"]) == ("warning", "headrace.test", "orders")
    assert first["size"] == str(2**70)
    age = datetime.now(UTC) - datetime.fromisoformat(first["time"])
    assert abs(age.total_seconds()) < 60
    assert set(second) == {"time", "level", "logger", "message"}


def test_a_line_cannot_be_taken_over_by_its_extras() -> None:
    stream, log = logged("json")
    log.info("true", extra={"level": "false", "logger": "false", "time": "false"})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"]) == ("info", "headrace.test")
    assert line["time"] != "false"


def test_text_that_is_no_unicode() -> None:
    stream, log = logged("json")
    log.info("a %s", "\udcff")
    assert json.loads(stream.getvalue())["message"] == "a \\udcff"


def test_an_exception_is_in_the_line() -> None:
    for log_format in LOG_FORMATS:
        stream, log = logged(log_format)
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("it failed")
        assert "ValueError: why" in stream.getvalue()
        if log_format == "json":
            assert "Traceback" in json.loads(stream.getvalue())["exception"]


def test_text_lines() -> None:
    stream, log = logged("text")
    log.info("three %s", "words", extra={"collection": "orders"})
    expected = r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00 INFO headrace\.test: three words collection=orders\n"
    assert re.fullmatch(expected, stream.getvalue())


def test_the_level_and_what_was_set_up_before() -> None:
    first, _ = logged("text")
    stream, log = logged("json", logging.WARNING)
    log.info("left out")
    assert stream.getvalue() == ""
    log.warning("kept")
    assert "kept" in stream.getvalue()
    assert first.getvalue() == ""


def test_warnings_are_lines_too() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        stream, _ = logged("json")
        warnings.warn("watch out", UserWarning, stacklevel=1)
        logging.captureWarnings(False)
    line = json.loads(stream.getvalue())
    assert line["logger"] == "py.warnings"
    assert "watch out" in line["message"]
