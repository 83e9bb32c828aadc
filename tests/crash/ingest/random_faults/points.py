"""The fault points of an ingest server, as they are in its source."""

from __future__ import annotations

import re
from pathlib import Path

import headrace

_ROOT = Path(headrace.__path__[0])
_NATIVE_SOURCES = Path(__file__).parents[4] / "native/core/src"
_TEXT = "\n".join(
    path.read_text()
    for path in [
        _ROOT / "objects.py",
        *(_ROOT / "wal").rglob("*.py"),
        *(_ROOT / "ingest").rglob("*.py"),
        *_NATIVE_SOURCES.rglob("*.rs"),
    ]
)

# No schedule puts a collection into quarantine: tests/crash/ingest/test_quarantined.py does.
_OF_QUARANTINE = ("quarantine ", "side log ")

SERVER_POINTS = tuple(
    sorted(
        point
        for point in set(re.findall(r'reached\("([^"]+)"\)', _TEXT))
        if not point.startswith(_OF_QUARANTINE)
    )
)
COMMITTER_POINTS = tuple(sorted({f"committer {step}" for step in re.findall(r'observe\("([^"]+)"\)', _TEXT)}))
