"""Certifications that nobody has run, for tests of what is said about them."""

from __future__ import annotations

from headrace.certify.results import Cell, Evidence, Mode, Outcome, Report, Seeded
from headrace.pipeline.settings import Guarantee

HELD, TWICE, BROKEN, NOT_RUN = Outcome.HELD, Outcome.TWICE, Outcome.BROKEN, Outcome.NOT_RUN
EXACTLY, EFFECTIVELY = Guarantee.EXACTLY_ONCE, Guarantee.EFFECTIVELY_ONCE
AT_LEAST, AT_MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
DURABLE = "single-node-durable"


def evidence(scenario: str = "killed", outcome: Outcome = HELD, told: str = "") -> Evidence:
    return Evidence(scenario, outcome, told, 7, ("kill at decided", "stall"), 1200, 9, 31, 4.25)


def cell(
    *found: Evidence,
    claimed: Guarantee = EXACTLY,
    source: str = "collection",
    sink: str = "postgres",
    profile: str = DURABLE,
) -> Cell:
    return Cell(source, sink, profile, claimed, found)


def report(*cells: Cell, seeded: tuple[Seeded, ...] = (), notes: tuple[str, ...] = ()) -> Report:
    versions = {"headrace": "1.2.3", "python": "3.11.9"}
    return Report(42, "2026-03-04T05:06:07+00:00", 754.0, Mode.FULL, versions, cells, seeded, notes)


def everything() -> Report:
    """With a cell of every kind."""
    return report(
        cell(evidence(), evidence("zombie")),
        cell(evidence(), evidence("zombie", BROKEN, "3 documents lost"), profile="dev-local"),
        cell(evidence(), evidence("zombie", TWICE), source="kafka", sink="redis", claimed=AT_LEAST),
        cell(evidence(), evidence("clock", NOT_RUN, "no clock"), sink="redis", claimed=EFFECTIVELY),
        cell(evidence("clock", NOT_RUN, "ended before"), source="kafka", sink="delta"),
        cell(evidence("blind"), sink="hudi"),
        cell(evidence("latest"), sink="webhook", profile="dev-local", claimed=AT_MOST),
        cell(evidence(), source="Flight client", sink="ingest: LOCAL_DISK", profile="-"),
        cell(evidence("fsync fails", TWICE), source="Flight client", sink="ingest: COMMITTED", profile="-"),
        seeded=(
            Seeded("killed", "commit not idempotent", True, "twice: 4 documents", 3.0),
            Seeded("blind", "fence not checked", False, "a refusal was expected", 2.0),
        ),
        notes=("Hudi was read with <another> reader",),
    )
