"""The error of a sync is ignored."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("sync_error_ignored")
