"""The fault points of an ingest server, as they are in its source."""

from __future__ import annotations

import re
from pathlib import Path

import headrace

_ROOT = Path(headrace.__path__[0])
_TEXT = "\n".join(
    path.read_text()
    for path in [_ROOT / "objects.py", *(_ROOT / "wal").rglob("*.py"), *(_ROOT / "ingest").rglob("*.py")]
)

SERVER_POINTS = tuple(sorted(set(re.findall(r'reached\("([^"]+)"\)', _TEXT))))
COMMITTER_POINTS = tuple(sorted({f"committer {step}" for step in re.findall(r'observe\("([^"]+)"\)', _TEXT)}))
