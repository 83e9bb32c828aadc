"""A certification as a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from headrace.certify.report_cells import (
    Matrix,
    counted,
    covered,
    failures,
    line,
    matrices,
    name_of,
    row_name,
    standing,
    untried,
    verdict,
    when,
)
from headrace.certify.results import Cell, Evidence, Outcome, Report, merged

_MOST_NAMED = 4

# An underscore within a word is none of Markdown's; a parenthesis is where it may end a link.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~#&]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")

_HOW_TO_READ = """\
## How to read it

A cell is one source, one sink and one [profile](guarantees.md#profiles). In each, every scenario that \
has a meaning there is run with real processes: something is made to go wrong at a named place, what was \
killed is started again, and when all is written the view is compared with what it must be. While it is \
being written it is read again and again, so that nothing partial and nothing early goes unseen.

| a cell says | when |
|---|---|
| `exactly-once`, `effectively-once`, `at-least-once`, `at-most-once` | every scenario that was run held as \
much. It is never more than what is [computed before the start](guarantees.md) |
| **failed**, and scenarios | in these something was lost, wrong or seen too early, or it counted twice \
where that is not allowed |
| void | it held in scenarios only that do not notice their own defect |
| not run | no run has shown anything |

To count something twice is excused where `at-least-once` is claimed or less, and nowhere else. Nothing \
excuses a loss.

A scenario is worth what it can notice. So it is run again with a defect put in that it must notice, \
such as a commit that is not idempotent or an acknowledgement before fsync. One whose defect is not \
caught is **void**: what it shows is nothing."""


def to_markdown(report: Report, meanings: Mapping[str, str] | None = None) -> str:
    """`meanings` says of scenarios, by their names, what each does."""
    parts = [
        *_intro(report),
        *(part for matrix in matrices(report) for part in _matrix(matrix, report.void)),
        *_listed("## What failed", failures(report)),
        *_scenarios(report, meanings or {}),
        *_seeded(report),
        _HOW_TO_READ,
        "## Versions",
        _table(("", "version"), ([_text(name), _text(of)] for name, of in report.versions.items())),
        *_listed("## Notes", report.notes),
    ]
    return "\n\n".join(parts) + "\n"


def _intro(report: Report) -> Iterator[str]:
    yield "# Certification"
    yield (
        "This page is generated, by `headrace certify --markdown`, from a run in which things go wrong on "
        "purpose. No cell claims what no run has shown. `headrace certify` does the same with your own "
        "endpoint."
    )
    yield f"{_text(when(report))} {_text(verdict(report))}"
    yield _text(covered(report))


def _matrix(matrix: Matrix, void: Collection[str]) -> Iterator[str]:
    yield f"## {_text(matrix.title)}"
    rows = (
        [_text(row_name(sink)), *(_cell(matrix.at(sink, column), void) for column in matrix.columns)]
        for sink in matrix.sinks
    )
    yield _table((matrix.rows_are, *(_text(column.name) for column in matrix.columns)), rows)


def _cell(cell: Cell | None, void: Collection[str]) -> str:
    stands = standing(cell, void)
    match stands.kind:
        case "failed":
            return f"**{_text(stands.words)}**"
        case "void" | "not-run":
            return stands.words
        case _:
            return f"`{stands.words}`"


def _scenarios(report: Report, meanings: Mapping[str, str]) -> Iterator[str]:
    found: dict[str, list[tuple[Cell, Evidence]]] = {}
    for cell in merged(report.cells):
        for one in cell.evidence:
            found.setdefault(one.scenario, []).append((cell, one))
    if not found:
        return
    yield "## Scenarios"
    headings = ["scenario", "what happens in it", "held in", "elsewhere", "documents", "looks"]
    rows = [_scenario(name, ran, name in report.void, meanings.get(name, "")) for name, ran in found.items()]
    if not any(meanings.get(name) for name in found):
        headings, rows = _without(1, headings), [_without(1, row) for row in rows]
    yield _table(headings, rows)


def _scenario(name: str, found: Sequence[tuple[Cell, Evidence]], is_void: bool, meaning: str) -> list[str]:
    held = [cell for cell, one in found if one.outcome is Outcome.HELD]
    ran = sum(one.outcome is not Outcome.NOT_RUN for _cell, one in found)
    all_of_them = "all " if len(held) == ran > 1 else ""
    share = f"{all_of_them}{ran:,}" if len(held) == ran else f"{len(held):,} of {ran:,}"
    return [
        _text(name) + (" (void)" if is_void else ""),
        _text(meaning),
        share if ran else "",
        _elsewhere(found),
        f"{sum(one.documents for _cell, one in found):,}",
        f"{sum(one.looks for _cell, one in found):,}",
    ]


def _elsewhere(found: Sequence[tuple[Cell, Evidence]]) -> str:
    broken = [cell for cell, one in found if one.outcome is Outcome.BROKEN]
    twice = [(cell, one) for cell, one in found if one.outcome is Outcome.TWICE]
    groups = {
        "**broken** in": broken,
        "**counts twice** in": [cell for cell, one in twice if one in cell.failures],
        "counts twice, as is allowed, in": [cell for cell, one in twice if one not in cell.failures],
    }
    parts = [f"{words} {_named(cells)}" for words, cells in groups.items() if cells]
    left = sum(one.outcome is Outcome.NOT_RUN for _cell, one in found)
    return "; ".join(parts + ([f"not run in {left:,}"] if left else []))


def _named(cells: Sequence[Cell]) -> str:
    """By their names, or by their sinks if they are many."""
    names = list(dict.fromkeys(map(name_of, cells)))
    if len(names) > _MOST_NAMED:
        sinks = dict.fromkeys(row_name(cell.sink) for cell in cells)
        return f"{counted(len(names), 'cell')} of {_text(', '.join(sinks))}"
    return _text(", ".join(names))


def _seeded(report: Report) -> Iterator[str]:
    yield "## Seeded defects"
    if not report.seeded:
        yield "None was tried in this run."
        return
    rows = (
        [
            _text(one.scenario),
            _text(one.defect),
            "caught" if one.caught else "**VOID**",
            _text(one.told),
        ]
        for one in report.seeded
    )
    yield _table(("scenario", "defect", "", "what was noticed, or should have been"), rows)
    if names := untried(report):
        yield f"Not tried with a defect in this run: {_text(', '.join(names))}."


def _listed(heading: str, sentences: Collection[str]) -> Iterator[str]:
    if sentences:
        yield heading
        yield "\n".join(f"- {_text(sentence)}" for sentence in sentences)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = f"|{'---|' * len(headings)}"
    return "\n".join([_row(headings), rule, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _without(index: int, cells: Sequence[str]) -> list[str]:
    return [*cells[:index], *cells[index + 1 :]]


def _text(text: str) -> str:
    """As it is, in one line of Markdown."""
    return _SPECIAL.sub(r"\\\g<0>", line(text))
