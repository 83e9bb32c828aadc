"""A write that comes at an earlier time than its producer's last one is taken for a duplicate."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("age_by_clock")
