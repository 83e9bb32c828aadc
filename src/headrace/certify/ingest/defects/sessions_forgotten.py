"""A new stream of a producer begins as if it had written nothing."""

from __future__ import annotations

from headrace.ingest.log import seeded

seeded.defects.append("sessions_forgotten")
