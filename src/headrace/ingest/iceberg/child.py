"""The child's end of a process that the server talks to on stdin and stdout."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

DIE_WITH_PARENT = "--die-with-parent"
_PR_SET_PDEATHSIG = 1


def become_child() -> tuple[Iterator[Any], BinaryIO]:
    """The requests, one JSON value a line, and where the answers go.

    The process ends as soon as the server does, whatever it is doing then.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which decides what becomes of us
    if DIE_WITH_PARENT in sys.argv and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that a library prints is an answer
    _log_as_json()
    requests: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    return iter(requests.get, None), answers


class _JsonLines(logging.Formatter):
    """Formats log records as lines that `parent` reads, and logs as its own."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return json.dumps({"level": record.levelno, "logger": record.name, "message": message})


def _log_as_json() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def _read_requests(requests: queue.Queue[Any]) -> None:
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    os._exit(0)
