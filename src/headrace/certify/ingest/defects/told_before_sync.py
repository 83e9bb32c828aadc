"""LOCAL_DISK is told of a write as soon as it has its LSN."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("told_before_sync")
