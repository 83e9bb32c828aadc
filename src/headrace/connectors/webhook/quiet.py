"""Keeps urllib3 from logging the URLs of our requests, which may hold secrets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_this_thread = threading.local()


def _is_not_ours(record: logging.LogRecord) -> bool:  # noqa: ARG001 - a filter is given one
    return not getattr(_this_thread, "is_sending", False)


for _name in ("urllib3.connectionpool", "urllib3.connection"):
    logging.getLogger(_name).addFilter(_is_not_ours)


@contextmanager
def unlogged() -> Iterator[None]:
    """Suppresses logging of a request; other threads and other users of urllib3 are logged as usual."""
    _this_thread.is_sending = True
    try:
        yield
    finally:
        _this_thread.is_sending = False
