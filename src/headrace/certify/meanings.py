"""Describes each scenario, and the kinds of faults that a set of them covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headrace.certify.ingest import scenarios as of_ingest
from headrace.certify.scenarios import HOST_LOST, SCENARIOS, Between, How, Network, Scenario

MEANINGS = {
    **{one.name: one.about for one in of_ingest.SCENARIOS},
    **{one.name: one.about for one in [*SCENARIOS, HOST_LOST]},
}

_BETWEEN = {
    Between.RESTORED: "identity",
    Between.FAILED_BACK: "identity",
    Between.SOURCE_RECREATED: "identity",
    Between.SHARED: "ownership",
    Between.FILE_CHANGED: "refusal before change",
    Between.ROLLED_BACK: "evidence",
    Between.HOST_LOST: "a lost host",
}


def _kind(scenario: Scenario) -> str:
    if kind := _BETWEEN.get(scenario.between):
        return kind
    if scenario.how is How.WOKEN:
        return "zombies"
    if scenario.network is not Network.FINE:
        return "broken connections"
    return "failures that pass" if scenario.how is How.GOES_ON else "crashes"


KINDS = {
    **{one.name: "crashes of the ingest server" for one in of_ingest.SCENARIOS},
    **{one.name: _kind(one) for one in [*SCENARIOS, HOST_LOST]},
}


def coverage(scenarios: Iterable[str]) -> str:
    """One sentence on what these cover, and what they leave out."""
    counts = Counter(KINDS.get(name, "others") for name in dict.fromkeys(scenarios))
    known = dict.fromkeys(KINDS.values())
    covered = ", ".join(f"{kind} ({counts[kind]})" for kind in (*known, "others") if counts[kind])
    missing = ", ".join(kind for kind in known if not counts[kind])
    left_out = f"; not covered: {missing}" if missing else ""
    return f"Covered, by scenarios: {covered or 'nothing'}{left_out}."
