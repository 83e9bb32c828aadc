"""A server ends if it cannot begin a segment at its start."""

from __future__ import annotations

from typing import Any

from headrace.errors import Terminal
from headrace.ingest.log import Log

_log: Any = Log
_init = _log.__init__


def _init_or_end(self: Any, *arguments: Any, **named: Any) -> None:
    _init(self, *arguments, **named)
    failure = self.health.failure
    if failure is not None:
        raise Terminal(failure)


_log.__init__ = _init_or_end
