"""What a child process says arrives in the server's log, in the server's format."""

from __future__ import annotations

import logging
import sys

import pytest

from headrace.ingest.iceberg.parent import Child
from tests.waiting import wait_until

pytestmark = pytest.mark.processes

TALKATIVE = """
import logging, os, sys
from headrace.ingest.iceberg.child import become_child
become_child()
logging.getLogger("headrace.somewhere").warning("the table %s\\nis slow", "orders")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("headrace.somewhere").exception("it failed")
print("a library's own words", flush=True)
sys.stderr.write('{"not": "ours"}\\n')
os.abort()
"""


def test_logs_and_last_words_are_relayed(caplog: pytest.LogCaptureFixture) -> None:
    child = Child([sys.executable, "-c", TALKATIVE])
    try:
        wait_until(lambda: not child.is_alive)
    finally:
        child.close()
    slow, failed, words, odd = caplog.records
    assert (slow.name, slow.levelno) == ("headrace.somewhere", logging.WARNING)
    assert slow.getMessage() == "the table orders\nis slow"
    assert failed.levelno == logging.ERROR
    assert failed.getMessage().startswith("it failed\nTraceback")
    assert [one.getMessage() for one in (words, odd)] == ["a library's own words", '{"not": "ours"}']
    assert words.levelno == logging.WARNING
