"""The error of a write to the log is ignored."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("write_error_ignored")
