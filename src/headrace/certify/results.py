"""What a certification has found: for each cell of the matrix the scenarios that were run, as evidence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from headrace.pipeline.settings import Guarantee

NOT_REMOVED = "not removed: "
"""So begins a note about what a certification has left in an endpoint."""


class Mode(StrEnum):
    QUICK = "quick"
    FULL = "full"
    SOAK = "soak"


class Outcome(StrEnum):
    HELD = "held"
    """What must hold after the fault does."""
    TWICE = "twice"
    """Nothing is lost or wrong, and something counts twice; an at-least-once sink is excused."""
    BROKEN = "broken"
    """Something is lost, wrong, or was seen too early or in part."""
    NOT_RUN = "not run"
    """The scenario has no meaning here, or the run was ended before it; `told` says which."""


@dataclass(frozen=True)
class Evidence:
    """One scenario in one cell."""

    scenario: str
    outcome: Outcome
    told: str = ""
    """What was lost or doubled, or why it was not run."""
    seed: int = 0
    faults: tuple[str, ...] = ()
    """What was made to happen, such as `kill at view decided`."""
    documents: int = 0
    """Written when the end state was checked."""
    epochs: int = 0
    looks: int = 0
    """How often the view was read while it was being written."""
    seconds: float = 0.0
    began: str = ""
    lost: int = 0
    """Documents that are not there."""
    doubled: int = 0
    """Documents that count more than once."""


@dataclass(frozen=True)
class Cell:
    """One combination of source, sink and profile."""

    source: str
    sink: str
    profile: str
    claimed: Guarantee
    """What is computed before the start, link by link."""
    evidence: tuple[Evidence, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.source} → {self.sink} ({self.profile})"

    @property
    def shown(self) -> Guarantee | None:
        """No more than is claimed, and no more than runs have shown; None if something broke or none ran."""
        outcomes = {one.outcome for one in self.evidence} - {Outcome.NOT_RUN}
        if not outcomes or Outcome.BROKEN in outcomes:
            return None
        seen = Guarantee.AT_LEAST_ONCE if Outcome.TWICE in outcomes else Guarantee.EXACTLY_ONCE
        return min(self.claimed, seen, key=list(Guarantee).index)

    @property
    def failures(self) -> tuple[Evidence, ...]:
        """What makes the cell less than it claims."""
        excused = list(Guarantee).index(self.claimed) <= list(Guarantee).index(Guarantee.AT_LEAST_ONCE)
        wrong = {Outcome.BROKEN} if excused else {Outcome.BROKEN, Outcome.TWICE}
        return tuple(one for one in self.evidence if one.outcome in wrong)


@dataclass(frozen=True)
class Seeded:
    """A scenario run with a defect that it must notice."""

    scenario: str
    defect: str
    caught: bool
    told: str = ""
    """What was noticed, or what had been expected."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    seed: int
    began: str
    seconds: float
    mode: Mode
    versions: dict[str, str]
    """Of everything that took part."""
    cells: tuple[Cell, ...] = ()
    seeded: tuple[Seeded, ...] = ()
    notes: tuple[str, ...] = field(default=())
    runs: int = 1
    """Number of runs that it is put together from."""

    @property
    def void(self) -> tuple[str, ...]:
        """Scenarios whose defect was not caught: what they show is nothing."""
        return tuple(dict.fromkeys(one.scenario for one in self.seeded if not one.caught))

    @property
    def is_good(self) -> bool:
        """Whether something was run, nothing failed, and every scenario has noticed its defect."""
        some = any(one.outcome is not Outcome.NOT_RUN for cell in self.cells for one in cell.evidence)
        return some and not self.void and not any(cell.failures for cell in self.cells)

    @property
    def held(self) -> frozenset[tuple[str, str]]:
        """Names of cells, and scenarios that have shown in them what they claim."""
        return frozenset(
            (cell.name, one.scenario)
            for cell in self.cells
            for one in cell.evidence
            if one.outcome is not Outcome.NOT_RUN
            and one not in cell.failures
            and one.scenario not in self.void
        )

    def added_to(self, earlier: Report) -> Report:
        """What both have shown, and of a scenario that both have run in a cell, what the later one has.

        Whether something was tried at all, the later one says.
        """
        kept = tuple(note for note in earlier.notes if note.startswith(NOT_REMOVED))
        cells = {cell.name: cell for cell in earlier.cells}
        for cell in self.cells:
            before = cells.get(cell.name, cell)
            cells[cell.name] = cell if before is cell else self._joined(before, cell)
        return replace(
            self,
            mode=Mode.FULL if earlier.mode is Mode.FULL else self.mode,
            began=earlier.began,
            seconds=round(earlier.seconds + self.seconds, 1),
            versions={**earlier.versions, **self.versions},
            cells=tuple(cells.values()),
            seeded=(*earlier.seeded, *self.seeded),
            notes=(*kept, *self.notes),
            runs=earlier.runs + self.runs,
        )

    def _joined(self, before: Cell, cell: Cell) -> Cell:
        """Chance may not find again what it has found."""
        again = {one.scenario for one in cell.evidence if one.outcome is not Outcome.NOT_RUN}
        kept = [one for one in before.evidence if self.mode is Mode.SOAK or one.scenario not in again]
        known = {one.scenario for one in kept}
        new = [
            one for one in cell.evidence if one.outcome is not Outcome.NOT_RUN or one.scenario not in known
        ]
        return replace(cell, evidence=(*kept, *new))

    def to_json(self) -> dict[str, Any]:
        raw = asdict(self)
        for cell, one in zip(raw["cells"], self.cells, strict=True):
            counted = tuple(evidence for evidence in one.evidence if evidence.scenario not in self.void)
            cell["shown"] = replace(one, evidence=counted).shown
        return {**raw, "void": list(self.void), "good": self.is_good}

    @staticmethod
    def of(raw: dict[str, Any]) -> Report:
        cells = tuple(
            Cell(
                one["source"],
                one["sink"],
                one["profile"],
                Guarantee(one["claimed"]),
                tuple(_evidence(evidence) for evidence in one["evidence"]),
            )
            for one in raw["cells"]
        )
        known = {name: raw[name] for name in ("seed", "began", "seconds", "versions")}
        seeded = tuple(Seeded(**one) for one in raw["seeded"])
        return Report(
            **known,
            mode=Mode(raw["mode"]),
            cells=cells,
            seeded=seeded,
            notes=tuple(raw["notes"]),
            runs=raw.get("runs", 1),
        )


def _evidence(raw: dict[str, Any]) -> Evidence:
    return Evidence(**{**raw, "outcome": Outcome(raw["outcome"]), "faults": tuple(raw["faults"])})


def merged(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """One for each combination, with the evidence of all that are of it."""
    found: dict[tuple[str, str, str], Cell] = {}
    for cell in cells:
        key = (cell.source, cell.sink, cell.profile)
        before = found.get(key)
        evidence = (before.evidence if before else ()) + cell.evidence
        claims = [cell.claimed, *([before.claimed] if before else [])]
        found[key] = Cell(*key, min(claims, key=list(Guarantee).index), evidence)
    return tuple(found.values())
