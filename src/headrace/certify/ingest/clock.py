"""A server's clock that goes wrong."""

from __future__ import annotations

from headrace.faults import Faults

MODULE = "headrace.certify.ingest.clock_back"
"""To be loaded into the server."""
STEPPED = "clock-stepped"


def step_back(faults: Faults) -> None:
    """By an hour, and for good."""
    (faults.folder / STEPPED).touch()
