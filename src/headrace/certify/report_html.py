"""A certification as one HTML page that needs nothing else: no script, no font, no picture."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from headrace.certify.report_cells import (
    Key,
    Matrix,
    anchors,
    counted,
    covered,
    duration,
    how_many_ran,
    key_of,
    matrices,
    moment,
    name_of,
    row_name,
    standing,
    untried,
    verdict,
)
from headrace.certify.report_markup import Markup, element, joined
from headrace.certify.report_style import STYLE
from headrace.certify.results import Cell, Evidence, Outcome, Report

_HEADINGS = (
    "scenario",
    "outcome",
    "what was told",
    "faults",
    "documents",
    "epochs",
    "looks",
    "seconds",
    "seed",
)
_SIGNS = {Outcome.HELD: "✓", Outcome.TWICE: "≥", Outcome.BROKEN: "✗", Outcome.NOT_RUN: "·"}
_LEGEND = (
    "✓ exactly-once: as if each document had come once. ≈ effectively-once: the same, though readers may see "
    "a document written again with the value that it has. ≥ at-least-once: nothing is missing, something may "
    "count twice. ≤ at-most-once: something may be missing. ✗ failed: less than is claimed, in the scenarios "
    "that are named. ? void: only scenarios that do not notice their own defect. · not run."
)


def to_html(report: Report, meanings: Mapping[str, str] | None = None) -> str:
    """`meanings` says of scenarios, by their names, what each does."""
    found = matrices(report)
    cells = [cell for matrix in found for cell in matrix.cells.values()]
    places = anchors(cells)
    body = [
        _header(report),
        element(
            "main",
            *(_matrix(matrix, places, report.void) for matrix in found),
            element("p", _LEGEND, class_="small"),
            *_meanings(meanings or {}),
            *_evidence(cells, places, report.void),
            *_seeded(report),
            *_notes(report.notes),
        ),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Headrace certification, {moment(report.began)}"),
        element("style", Markup(STYLE)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', *body), lang='en')}\n"


def _header(report: Report) -> Markup:
    facts = {
        "began": moment(report.began),
        "took": duration(report.seconds),
        "seed": str(report.seed),
        "mode": report.mode,
        **report.versions,
    }
    pairs = (part for name, value in facts.items() for part in (element("dt", name), element("dd", value)))
    kind, sign = ("held", "✓") if report.is_good else ("failed", "✗")
    return element(
        "header",
        element("h1", "Headrace certification"),
        element("p", _sign(sign), verdict(report), class_=f"verdict {kind}"),
        element("p", covered(report)),
        element("dl", *pairs, class_="facts"),
    )


def _matrix(matrix: Matrix, places: Mapping[Key, str], void: Collection[str]) -> Markup:
    has_profiles = any(column.has_profile for column in matrix.columns)
    corner = element("th", matrix.rows_are, scope="col", rowspan="2" if has_profiles else "1")
    sources = (
        element("th", source, scope="colgroup", colspan=str(len(columns)))
        for source, columns in matrix.by_source().items()
    )
    profiles = (element("th", column.profile, scope="col") for column in matrix.columns)
    heads = [element("tr", corner, *sources), *([element("tr", *profiles)] if has_profiles else [])]
    rows = (
        element(
            "tr",
            element("th", row_name(sink), scope="row"),
            *(_cell(matrix.at(sink, column), places, void) for column in matrix.columns),
        )
        for sink in matrix.sinks
    )
    table = element(
        "table",
        element("caption", "Each cell leads to its evidence."),
        element("thead", *heads),
        element("tbody", *rows),
        class_="matrix",
    )
    return element("section", element("h2", matrix.title), _wide(table, matrix.title))


def _cell(cell: Cell | None, places: Mapping[Key, str], void: Collection[str]) -> Markup:
    stands = standing(cell, void)
    if cell is None:
        return element("td", _sign(stands.sign), stands.words, class_=stands.kind)
    link = element("a", stands.words, href=f"#{places[key_of(cell)]}", aria_label=_label(cell, stands.words))
    return element(
        "td",
        _sign(stands.sign),
        link,
        element("span", how_many_ran(cell), class_="small"),
        class_=stands.kind,
    )


def _label(cell: Cell, words: str) -> str:
    """A list of links, read aloud, has no rows and columns to tell them apart by."""
    return f"{words}: {name_of(cell)}"


def _meanings(meanings: Mapping[str, str]) -> Iterator[Markup]:
    if meanings:
        rows = (
            element("tr", element("th", scenario, scope="row"), element("td", meaning, class_="told"))
            for scenario, meaning in meanings.items()
        )
        table = _table(("scenario", "what happens in it"), rows)
        yield element("section", element("h2", "Scenarios"), _wide(table, "Scenarios"))


def _evidence(cells: Collection[Cell], places: Mapping[Key, str], void: Collection[str]) -> Iterator[Markup]:
    if cells:
        sections = (_section(cell, places[key_of(cell)], void) for cell in cells)
        yield element("section", element("h2", "Evidence"), *sections)


def _section(cell: Cell, anchor: str, void: Collection[str]) -> Markup:
    stands = standing(cell, void)
    name = name_of(cell)
    table = _table(_HEADINGS, (_row(cell, one, void) for one in cell.evidence))
    return element(
        "section",
        element("h3", name),
        element("p", f"Claimed: {cell.claimed}. Shown: ", _sign(stands.sign), stands.words, "."),
        _wide(table, f"Evidence of {name}") if cell.evidence else element("p", "No scenario was run."),
        id=anchor,
        class_="cell",
    )


def _row(cell: Cell, one: Evidence, void: Collection[str]) -> Markup:
    numbers = (
        f"{one.documents:,}",
        f"{one.epochs:,}",
        f"{one.looks:,}",
        f"{one.seconds:.1f}",
        str(one.seed),
    )
    return element(
        "tr",
        element("th", one.scenario, scope="row"),
        _outcome(cell, one, one.scenario in void),
        element("td", one.told, class_="told"),
        element("td", *_lines(one.faults)),
        *(element("td", number, class_="number") for number in numbers),
    )


def _outcome(cell: Cell, one: Evidence, is_void: bool) -> Markup:
    words, sign, kind = str(one.outcome), _SIGNS[one.outcome], one.outcome.replace(" ", "-")
    if one in cell.failures:
        sign, kind = "✗", "failed"
    elif one.outcome is Outcome.TWICE:
        words += ", as is allowed"
    elif one.outcome is Outcome.HELD and is_void:
        sign, kind = "?", "void"
    if is_void:
        words += ", in a void scenario"
    return element("td", _sign(sign), words, class_=kind)


def _seeded(report: Report) -> Iterator[Markup]:
    seeded = report.seeded
    yield element("h2", "Seeded defects")
    if not seeded:
        yield element("p", "None was tried in this run.")
        return
    yield element(
        "p",
        "Scenarios were run again with a defect put in that they have to notice. One that does not is VOID: "
        "what it shows is nothing.",
    )
    rows = (
        element(
            "tr",
            element("th", one.scenario, scope="row"),
            element("td", one.defect),
            element("td", _sign("✓"), "caught", class_="caught")
            if one.caught
            else element("td", _sign("?"), "VOID", class_="void"),
            element("td", one.told, class_="told"),
            element("td", f"{one.seconds:.1f}", class_="number"),
        )
        for one in seeded
    )
    caught = sum(one.caught for one in seeded)
    title = f"{caught} of {counted(len(seeded), 'defect')} caught"
    yield _wide(_table(("scenario", "defect", "", "what was told", "seconds"), rows, title), "Seeded defects")
    if names := untried(report):
        yield element("p", f"Not tried with a defect in this run: {', '.join(names)}.")


def _notes(notes: Collection[str]) -> Iterator[Markup]:
    if notes:
        yield element("h2", "Notes")
        yield element("ul", *(element("li", note) for note in notes))


def _table(headings: Iterable[str], rows: Iterable[Markup], title: str = "") -> Markup:
    top = (element("th", heading or "result", scope="col") for heading in headings)
    caption = [element("caption", title)] if title else []
    return element("table", *caption, element("thead", element("tr", *top)), element("tbody", *rows))


def _wide(table: Markup, name: str) -> Markup:
    """Scrolls by itself where the window is narrow, with the keyboard too."""
    return element("div", table, class_="wide", role="region", aria_label=name, tabindex="0")


def _sign(sign: str) -> Markup:
    return joined(element("span", sign, class_="sign", aria_hidden="true"), " ")


def _lines(texts: Iterable[str]) -> Iterator[Markup]:
    for index, text in enumerate(texts):
        yield joined(element("br"), text) if index else joined(text)
