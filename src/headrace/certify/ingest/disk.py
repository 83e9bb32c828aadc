"""The disk of a server's log, which is full for a while."""

from __future__ import annotations

from headrace.faults import Faults

MODULE = "headrace.certify.ingest.full_disk"
"""To be loaded into the server."""
FULL = "disk-is-full"


def fill(faults: Faults) -> None:
    (faults.folder / FULL).touch()


def empty(faults: Faults) -> None:
    (faults.folder / FULL).unlink()
