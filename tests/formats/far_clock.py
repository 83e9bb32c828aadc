"""Imported by a server that makes a fixture: it takes its writes for those of the year 2100.

The log forgets producers that have been silent for a week. Those of a fixture have to be known for longer.
"""

from __future__ import annotations

from types import SimpleNamespace

from headrace.ingest import progress

_THEN_NS = 4_102_444_800 * 10**9

vars(progress)["time"] = SimpleNamespace(time_ns=lambda: _THEN_NS)
