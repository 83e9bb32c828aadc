"""A certification for a terminal."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.certify.report_cells import (
    Column,
    Matrix,
    Standing,
    covered,
    duration,
    failures,
    line,
    matrices,
    row_name,
    standing,
    verdict,
    voids,
)
from headrace.certify.results import Report

_COLOURS = {
    "exactly-once": "green",
    "effectively-once": "cyan",
    "at-least-once": "yellow",
    "at-most-once": "yellow",
    "failed": "bold red",
    "void": "bold magenta",
    "not-run": "dim",
}
_WIDTH = 100


def show(console: Console, report: Report) -> None:
    """In colour, if the console has any."""
    for part in _parts(report):
        # A terminal has a width to fill; in a file each sentence is a line.
        console.print(part, soft_wrap=isinstance(part, Text) and not console.is_terminal)


def to_text(report: Report, width: int = _WIDTH) -> str:
    """Without colour."""
    written = io.StringIO()
    show(Console(file=written, width=width, color_system=None, force_terminal=False), report)
    return "\n".join(row.rstrip() for row in written.getvalue().splitlines()) + "\n"


def _parts(report: Report) -> Iterator[RenderableType]:
    for matrix in matrices(report):
        for source, columns in matrix.by_source().items():
            yield _table(matrix, source, columns, report.void)
    yield from _listed("failed", failures(report), "red")
    yield from _listed("void", voids(report), "magenta")
    yield from _listed("note", map(line, report.notes), "")
    yield Text(f"{report.mode}, seed {report.seed}, {duration(report.seconds)}")
    yield Text(covered(report))
    yield Text(verdict(report), style="bold green" if report.is_good else "bold red")


def _table(matrix: Matrix, source: str, columns: Collection[Column], void: Collection[str]) -> Table:
    """One for each source, since all profiles of two are too wide for most windows."""
    title = Text(f"{matrix.title.partition(':')[0]} from {source}")
    table = Table(title=title, title_justify="left")
    table.add_column(matrix.rows_are)
    for column in columns:
        table.add_column(Text(column.profile if column.has_profile else "promise"))
    for sink in matrix.sinks:
        cells = [matrix.at(sink, column) for column in columns]
        if any(cell is not None for cell in cells):
            table.add_row(Text(row_name(sink)), *(_shown(standing(cell, void)) for cell in cells))
    return table


def _shown(stands: Standing) -> Text:
    return Text(f"{stands.sign} {stands.words}", style=_COLOURS[stands.kind])


def _listed(kind: str, sentences: Iterable[str], style: str) -> Iterator[Text]:
    for sentence in sentences:
        yield Text.assemble((f"{kind}: ", style), sentence)
