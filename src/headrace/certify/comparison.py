"""Whether a certification has become worse than one before it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.certify.report_cells import failure, key_of, line, name_of, ran
from headrace.certify.results import Cell, Evidence, Outcome, Report, merged
from headrace.pipeline.settings import Guarantee

_WORSE = (Outcome.HELD, Outcome.TWICE, Outcome.BROKEN)
_GUARANTEES = list(Guarantee)


def worse_than(report: Report, before: Report) -> list[str]:
    """A sentence for each thing that is worse. What was not run now is not."""
    earlier = {key_of(cell): cell for cell in merged(before.cells)}
    found: list[str] = []
    for cell in merged(report.cells):
        known = earlier.get(key_of(cell))
        if known is None:
            found += (
                f"{failure(cell, one)}; this cell is new"
                for one in _worst(cell).values()
                if one in cell.failures
            )
        else:
            found += _worse(cell, known)
    return [*found, *_void(report, before)]


def _worse(cell: Cell, before: Cell) -> Iterator[str]:
    was = _worst(before)
    is_worse = False
    for scenario, one in _worst(cell).items():
        # Whether an at-least-once sink does count twice is a matter of luck, and of no interest.
        if one.outcome is Outcome.HELD or (one not in cell.failures and _may_repeat(before)):
            continue
        known = was.get(scenario)
        if known is None or _WORSE.index(one.outcome) > _WORSE.index(known.outcome):
            is_worse = True
            yield f"{failure(cell, one)}; {_was(known)}"
    shown, known_shown = cell.shown, before.shown
    if is_worse or shown is None or known_shown is None:
        return
    if _GUARANTEES.index(shown) < _GUARANTEES.index(known_shown):
        yield f"{name_of(cell)}: it is {shown}, and was {known_shown}"


def _was(known: Evidence | None) -> str:
    if known is None:
        return "it was not run before"
    return "it held before" if known.outcome is Outcome.HELD else "before, it only counted something twice"


def _may_repeat(cell: Cell) -> bool:
    return _GUARANTEES.index(cell.claimed) <= _GUARANTEES.index(Guarantee.AT_LEAST_ONCE)


def _worst(cell: Cell) -> dict[str, Evidence]:
    """Of each scenario that was run, since one may have been run with several seeds."""
    found: dict[str, Evidence] = {}
    for one in ran(cell):
        known = found.get(one.scenario)
        if known is None or _WORSE.index(one.outcome) > _WORSE.index(known.outcome):
            found[one.scenario] = one
    return found


def _void(report: Report, before: Report) -> Iterator[str]:
    unnoticed = {(one.scenario, one.defect) for one in before.seeded if not one.caught}
    noticed = {(one.scenario, one.defect) for one in before.seeded if one.caught}
    for one in report.seeded:
        pair = (one.scenario, one.defect)
        if one.caught or pair in unnoticed:
            continue
        then = "it did before" if pair in noticed else "it was not tried before"
        told = f": {line(one.told)}" if one.told else ""
        yield f"{one.scenario} is void, for it does not notice the defect {one.defect!r}; {then}{told}"
