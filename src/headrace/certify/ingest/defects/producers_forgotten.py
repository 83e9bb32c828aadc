"""A restart forgets what producers have written."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("producers_forgotten")
