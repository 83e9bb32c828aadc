"""What all reports say alike: how a cell stands, how the matrix is laid out, and the sentences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace.certify.meanings import coverage
from headrace.certify.results import Cell, Evidence, Outcome, Report, merged
from headrace.pipeline.settings import Guarantee, Profile

_INGEST = "ingest: "
_NO_PROFILE = "-"
_MOST_NAMED = 2

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Standing:
    """What a cell of the matrix says."""

    kind: str
    """A guarantee, or `failed`, `void` or `not-run`."""
    words: str

    @property
    def sign(self) -> str:
        """Says the same as the colour, for who does not see it."""
        return _SIGNS[self.kind]


_SIGNS = {
    str(Guarantee.EXACTLY_ONCE): "✓",
    str(Guarantee.EFFECTIVELY_ONCE): "≈",
    str(Guarantee.AT_LEAST_ONCE): "≥",
    str(Guarantee.AT_MOST_ONCE): "≤",
    "failed": "✗",
    "void": "?",
    "not-run": "·",
}


def standing(cell: Cell | None, void: Collection[str]) -> Standing:
    """A failure counts whichever scenario found it; what holds in a void one shows nothing."""
    if cell is None:
        return Standing("not-run", "not run")
    if cell.failures:
        names = list(dict.fromkeys(one.scenario for one in cell.failures))
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return Standing("failed", f"failed: {', '.join(names[:_MOST_NAMED])}{more}")
    solid = replace(cell, evidence=tuple(one for one in cell.evidence if one.scenario not in void))
    if solid.shown is not None:
        return Standing(str(solid.shown), str(solid.shown))
    return Standing("not-run", "not run") if cell.shown is None else Standing("void", "void")


@dataclass(frozen=True)
class Column:
    source: str
    profile: str

    @property
    def has_profile(self) -> bool:
        return self.profile != _NO_PROFILE

    @property
    def name(self) -> str:
        return f"{self.source}, {self.profile}" if self.has_profile else self.source


@dataclass(frozen=True)
class Matrix:
    title: str
    rows_are: str
    sinks: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: dict[Key, Cell]

    @staticmethod
    def of(title: str, rows_are: str, cells: Collection[Cell]) -> Matrix:
        """Rows and sources in the order in which they come, profiles from the weakest to the strongest."""
        sources = list(dict.fromkeys(cell.source for cell in cells))
        known = [*map(str, Profile)]
        columns = sorted(
            {Column(cell.source, cell.profile) for cell in cells},
            key=lambda one: (
                sources.index(one.source),
                known.index(one.profile) if one.profile in known else len(known),
                one.profile,
            ),
        )
        sinks = tuple(dict.fromkeys(cell.sink for cell in cells))
        return Matrix(title, rows_are, sinks, tuple(columns), {key_of(cell): cell for cell in cells})

    def at(self, sink: str, column: Column) -> Cell | None:
        return self.cells.get((column.source, sink, column.profile))

    def by_source(self) -> dict[str, tuple[Column, ...]]:
        found: dict[str, tuple[Column, ...]] = {}
        for column in self.columns:
            found[column.source] = (*found.get(column.source, ()), column)
        return found


def matrices(report: Report) -> tuple[Matrix, ...]:
    """One of materializations and one of ingest, without one that would be empty."""
    cells = merged(report.cells)
    views = [cell for cell in cells if not is_ingest(cell)]
    tiers = [cell for cell in cells if is_ingest(cell)]
    both = (
        Matrix.of("Materializations: what each sink guarantees", "sink", views),
        Matrix.of("Ingest: what each tier promises", "tier", tiers),
    )
    return tuple(matrix for matrix in both if matrix.cells)


def is_ingest(cell: Cell) -> bool:
    return cell.sink.startswith(_INGEST)


def row_name(sink: str) -> str:
    return sink.removeprefix(_INGEST)


def key_of(cell: Cell) -> Key:
    return cell.source, cell.sink, cell.profile


def name_of(cell: Cell) -> str:
    """Without what only tells cells of ingest from others."""
    name = f"{cell.source} → {row_name(cell.sink)}"
    return name if cell.profile == _NO_PROFILE else f"{name} ({cell.profile})"


def anchors(cells: Iterable[Cell]) -> dict[Key, str]:
    """A name for each cell's place in a page, which stays the same as long as the cell's does."""
    found: dict[Key, str] = {}
    taken: set[str] = set()
    for cell in cells:
        base = "-".join(re.findall(r"[a-z0-9]+", " ".join(key_of(cell)).lower())) or "cell"
        anchor, count = f"cell-{base}", 1
        while anchor in taken:
            count += 1
            anchor = f"cell-{base}-{count}"
        taken.add(anchor)
        found[key_of(cell)] = anchor
    return found


def ran(cell: Cell) -> tuple[Evidence, ...]:
    return tuple(one for one in cell.evidence if one.outcome is not Outcome.NOT_RUN)


def how_many_ran(cell: Cell) -> str:
    done, known = len(ran(cell)), len(cell.evidence)
    return counted(known, "scenario") if done == known else f"{done} of {counted(known, 'scenario')}"


def failures(report: Report) -> list[str]:
    """A sentence for each scenario that failed somewhere."""
    return [failure(cell, one) for cell in merged(report.cells) for one in cell.failures]


def failure(cell: Cell, one: Evidence) -> str:
    what = "counts something twice" if one.outcome is Outcome.TWICE else "is broken"
    told = f": {line(one.told)}" if one.told else ""
    return f"{name_of(cell)}: {one.scenario} {what}{told} (seed {one.seed})"


def voids(report: Report) -> list[str]:
    """A sentence for each defect that nobody noticed."""
    return [
        f"{one.scenario} is void, for it does not notice the defect {one.defect!r}"
        + (f": {line(one.told)}" if one.told else "")
        for one in report.seeded
        if not one.caught
    ]


def untried(report: Report) -> list[str]:
    """Scenarios that were run, and not with a defect."""
    tried = {one.scenario for one in report.seeded}
    names = dict.fromkeys(one.scenario for cell in report.cells for one in ran(cell))
    return [name for name in names if name not in tried]


def verdict(report: Report) -> str:
    """The whole in one sentence."""
    cells = merged(report.cells)
    if not cells:
        return "Nothing was certified: there is no cell."
    stand = [standing(cell, report.void).kind for cell in cells]
    good = sum(kind not in ("failed", "void", "not-run") for kind in stand)
    parts = [f"{good} of {counted(len(cells), 'cell')} held what they claim"]
    parts += [f"{n} failed" for n in [stand.count("failed")] if n]
    parts += [f"{n} with void scenarios alone" for n in [stand.count("void")] if n]
    parts += [f"{n} not run" for n in [stand.count("not-run")] if n]
    if report.seeded:
        caught = sum(one.caught for one in report.seeded)
        parts.append(f"{caught} of {counted(len(report.seeded), 'seeded defect')} noticed")
    return f"{'Certified' if report.is_good else 'NOT certified'}: {', '.join(parts)}."


def covered(report: Report) -> str:
    """One sentence on what the scenarios cover that were run."""
    return coverage(one.scenario for cell in report.cells for one in ran(cell))


def when(report: Report) -> str:
    """One sentence on when it was run, and in how many runs."""
    took = f"took {duration(report.seconds)}, in mode {report.mode} with seed {report.seed}"
    if report.runs == 1:
        return f"The run began at {moment(report.began)} and {took}."
    return f"It is of {report.runs} runs, of which the first began at {moment(report.began)}; they {took}."


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def line(text: str) -> str:
    """As one line."""
    return " ".join(text.split())


def moment(text: str) -> str:
    """An ISO time for people; what is none is left as it is."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if at.tzinfo is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
