"""Sets the clock of a process back by an hour, when it is imported (`headrace.faults`)."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, tzinfo
from types import SimpleNamespace

from grpc import _channel

from headrace.pipeline import pipeline, recovery_log

_SECONDS = 3600

_time, _time_ns = time.time, time.time_ns
# Its deadlines are moments of the machine's clock, which nobody has set back.
_channel.time = SimpleNamespace(**vars(time))  # type: ignore[attr-defined,assignment]


class _Earlier(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> _Earlier:
        return super().now(tz) - timedelta(seconds=_SECONDS)


time.time = lambda: _time() - _SECONDS
time.time_ns = lambda: _time_ns() - _SECONDS * 1_000_000_000
for _module in (pipeline, recovery_log):
    _module.datetime = _Earlier  # type: ignore[attr-defined]
