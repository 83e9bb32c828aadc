"""Runs the scenarios, and then each of the defects that they have to notice."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from headrace.certify.ingest.oracle import Finding
from headrace.certify.ingest.scenarios import SCENARIOS, Scenario
from headrace.certify.ingest.seeded import DEFECTS, Defect
from headrace.certify.ingest.stage import Stage
from headrace.certify.progress import Steps
from headrace.certify.quiet import quiet
from headrace.certify.results import Cell, Evidence, Outcome, Seeded
from headrace.errors import HeadraceError
from headrace.model.tiers import Tier
from headrace.pipeline.settings import Guarantee

SOURCE = "Flight client"
QUICK = ("killed in the log", "power lost", "disk lost", "killed at a commit")
_CLAIMED = dict.fromkeys(Tier, Guarantee.EXACTLY_ONCE) | {Tier.MEMORY: Guarantee.AT_MOST_ONCE}
CELLS = {tier: Cell(SOURCE, f"ingest: {tier.name}", "-", _CLAIMED[tier]) for tier in Tier}
"""Of which nothing is known yet."""
_QUICK_POINTS = 1
_AT_ONCE = 2
# Some defects show only in what was under way at that moment.
_TRIES = 3


@dataclass(frozen=True)
class Verdict:
    """What one run has found of each tier that it is about."""

    findings: dict[Tier, list[Finding]]
    documents: int
    seconds: float
    began: str

    def outcome(self, tier: Tier) -> Outcome:
        found = self.findings[tier]
        if not found:
            return Outcome.HELD
        return Outcome.TWICE if all(one.is_twice for one in found) else Outcome.BROKEN

    @property
    def told(self) -> tuple[str, ...]:
        """What is wrong, with any tier."""
        return tuple(dict.fromkeys(one.text for found in self.findings.values() for one in found))


def scenarios_of_ingest(quick: bool) -> list[Scenario]:
    """A quick certification has some of them, each with its first point."""
    return [_shortened(one) for one in SCENARIOS if one.name in QUICK] if quick else list(SCENARIOS)


def _defects_of(scenarios: Sequence[Scenario], quick: bool) -> list[Defect]:
    """A quick certification has the first of each."""
    found = {one.scenario: one for one in reversed(DEFECTS)}.values() if quick else DEFECTS
    names = {scenario.name for scenario in scenarios}
    return [one for one in found if one.scenario in names]


def certify_ingest(
    folder: Path, seed: int, scenarios: Sequence[Scenario], quick: bool, steps: Steps
) -> tuple[list[Cell], list[Seeded]]:
    """One cell for each tier. Two runs at a time, since each of them waits for most of it."""
    defects = _defects_of(scenarios, quick)
    names = {scenario.name: scenario for scenario in scenarios}
    steps.expect(len(scenarios) + len(defects))

    def show(numbered: tuple[int, Scenario]) -> Verdict:
        number, scenario = numbered
        steps(scenario.name)
        return run(scenario, folder / f"run-{number}", seed)

    def seed_defect(numbered: tuple[int, Defect]) -> Seeded:
        number, defect = numbered
        steps(f"{defect.scenario}, and {defect.text}")
        return try_defect(names[defect.scenario], defect, folder / f"defect-{number}", seed)

    # Our client says each time that it reconnects, and what is lost where a defect loses it.
    with quiet("headrace.client"), _pool() as pool:
        shown = pool.map(show, enumerate(scenarios))
        seeded = list(pool.map(seed_defect, enumerate(defects)))
        evidence = [
            (tier, _evidence(scenario, verdict, tier, seed))
            for scenario, verdict in zip(scenarios, shown, strict=True)
            for tier in scenario.tiers
        ]
    return _cells(evidence), seeded


def soak_ingest(
    folder: Path, seed: int, scenarios: Sequence[Scenario], seconds: float, steps: Steps
) -> list[Cell]:
    """Scenarios by chance, each with its own seed, which is in the evidence."""
    draw = random.Random(seed)  # noqa: S311 - to be drawn again
    began = time.monotonic()
    evidence: list[tuple[Tier, Evidence]] = []
    number = 0
    with quiet("headrace.client"):
        while (passed := time.monotonic() - began) < seconds:
            scenario, chance = draw.choice(scenarios), draw.randrange(1 << 31)
            steps.at(scenario.name, passed / seconds)
            verdict = run(scenario, folder / f"run-{number}", chance)
            shutil.rmtree(folder / f"run-{number}", ignore_errors=True)
            evidence += [(tier, _evidence(scenario, verdict, tier, chance)) for tier in scenario.tiers]
            number += 1
    return _cells(evidence)


def _cells(evidence: Sequence[tuple[Tier, Evidence]]) -> list[Cell]:
    return [
        replace(cell, evidence=tuple(found for about, found in evidence if about is tier))
        for tier, cell in CELLS.items()
        if any(about is tier for about, _ in evidence)
    ]


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """Who interrupts it does not wait for what is not begun."""
    pool = ThreadPoolExecutor(_AT_ONCE)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def run(scenario: Scenario, folder: Path, seed: int, defect: Defect | None = None) -> Verdict:
    """Whatever goes wrong in it is a finding of the run."""
    began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    points = defect.points if defect and defect.points else scenario.points
    stage = Stage(folder, seed, points, [defect.module] if defect else [])
    findings: dict[Tier, list[Finding]]
    try:
        scenario.run(stage)
    except Exception as error:  # noqa: BLE001 - whatever it is, what was promised was not seen to hold
        text = _in_short(error.message if isinstance(error, HeadraceError) else repr(error))
        text = text.replace(str(folder), "FOLDER")  # which is another one each time
        findings = {tier: [Finding(text)] for tier in scenario.tiers}
    else:
        findings = {tier: _findings(stage, tier) for tier in scenario.tiers}
    return Verdict(findings, len(stage.journal.writes), round(time.monotonic() - clock, 1), began)


def try_defect(scenario: Scenario, defect: Defect, folder: Path, seed: int) -> Seeded:
    """Whether the scenario notices it."""
    seconds = 0.0
    for number in range(_TRIES):
        verdict = run(scenario, folder / f"try-{number}", seed + number, defect)
        seconds += verdict.seconds
        noticed = [text for text in verdict.told if re.search(defect.notice, text)]
        if noticed:
            return Seeded(scenario.name, defect.text, True, noticed[0], round(seconds, 1))
    told = next(iter(verdict.told), "nothing")
    return Seeded(
        scenario.name, defect.text, False, f"expected: {defect.notice}; found: {told}", round(seconds, 1)
    )


def _in_short(text: str) -> str:
    """Without what a server said before its last words."""
    first, *rest = text.splitlines() or [""]
    return f"{first} {rest[-1]}" if rest else first


def _shortened(scenario: Scenario) -> Scenario:
    return replace(scenario, points=scenario.points[:_QUICK_POINTS])


def _findings(stage: Stage, tier: Tier) -> list[Finding]:
    if stage.end is None:
        return [Finding("the run ended before its end state was seen")]
    return stage.end.findings_of_memory() if tier is Tier.MEMORY else stage.end.findings(tier)


def _evidence(scenario: Scenario, verdict: Verdict, tier: Tier, seed: int) -> Evidence:
    return Evidence(
        scenario.name,
        verdict.outcome(tier),
        "; ".join(one.text for one in verdict.findings[tier]),
        seed,
        _faults(scenario.fault, scenario.points),
        verdict.documents,
        seconds=verdict.seconds,
        began=verdict.began,
    )


def _faults(fault: str, points: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{fault} at {point}" for point in points) or (fault,)
