"""A server's clock that goes wrong."""

from __future__ import annotations

from headrace.faults import Faults

MODULE = "headrace.certify.ingest.stepped_clock"
"""To be loaded into the server."""
STEPPED = "clock-stepped"
_HOUR = 3600


def step(faults: Faults, seconds: int) -> None:
    """Has the clock go ahead by so much of the right time, or behind it, until the next step."""
    file = faults.folder / STEPPED
    aside = file.with_name(f"{STEPPED}.new")
    aside.write_text(str(seconds))
    aside.replace(file)


def step_back(faults: Faults) -> None:
    """By an hour, and for good."""
    step(faults, -_HOUR)
