"""Loaded into a server: its clock goes back by an hour as soon as a file says so."""

from __future__ import annotations

import os
import time
from pathlib import Path

from headrace.certify.ingest.clock import STEPPED
from headrace.faults import VARIABLE

_HOUR = 3600

_file = Path(os.environ[VARIABLE]) / STEPPED
_time, _time_ns = time.time, time.time_ns


def _now() -> float:
    return _time() - (_HOUR if _file.exists() else 0)


def _now_ns() -> int:
    return _time_ns() - (_HOUR * 10**9 if _file.exists() else 0)


time.time, time.time_ns = _now, _now_ns
