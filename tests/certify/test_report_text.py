"""What a terminal shows."""

from __future__ import annotations

import io
import re

from rich.console import Console

from headrace.certify.report_text import show, to_text
from headrace.certify.results import Seeded
from tests.certify.made_up import BROKEN, cell, everything, evidence, report


def cells_of(text: str, name: str) -> list[list[str]]:
    """Of all rows of that name."""
    rows = [[one.strip() for one in row.split("│")[1:-1]] for row in text.splitlines() if "│" in row]
    return [row[1:] for row in rows if row[0] == name]


def test_the_matrix_has_every_cell() -> None:
    text = to_text(everything())
    assert cells_of(text, "postgres") == [["✗ failed: zombie", "✓ exactly-once"]]
    assert cells_of(text, "redis") == [["· not run", "≈ effectively-once"], ["≥ at-least-once"]]
    assert cells_of(text, "hudi") == [["· not run", "? void"]]
    assert cells_of(text, "LOCAL_DISK") == [["✓ exactly-once"]]


def test_its_rows_are_aligned_and_fit() -> None:
    profiles = ("dev-local", "single-node-durable", "distributed-durable")
    cells = [cell(evidence(), sink=sink, profile=one) for sink in ("postgres", "s3") for one in profiles]
    rows = [row for row in to_text(report(*cells), width=80).splitlines() if row[:1] in "┏┃┡│└"]
    assert len({len(row) for row in rows}) == 1
    assert len(rows[0]) <= 80


def test_each_failure_is_one_line() -> None:
    told = f"{'lost ' * 40}\nand more"
    rows = to_text(report(cell(evidence("cut", BROKEN, told)))).splitlines()
    (row,) = [row for row in rows if row.startswith("failed: ")]
    assert row.startswith("failed: collection → postgres (single-node-durable): cut is broken: lost lost")
    assert row.endswith("lost and more (seed 7)")


def test_void_scenarios_are_named() -> None:
    text = to_text(report(cell(evidence()), seeded=(Seeded("blind", "no fence", False, "a refusal"),)))
    assert "void: blind is void, for it does not notice the defect 'no fence': a refusal\n" in text


def test_the_last_line_is_the_verdict() -> None:
    assert to_text(everything()).splitlines()[-1].startswith("NOT certified: 5 of 9 cells")
    assert to_text(report(cell(evidence()))).splitlines()[-1].startswith("Certified: 1 of 1 cell")


def test_brackets_are_no_markup() -> None:
    one = cell(evidence("[red]x[/red]", BROKEN, "[/nothing]"), sink="[bold]", source="[a]")
    text = to_text(report(one))
    assert cells_of(text, "[bold]") == [["✗ failed: [red]x[/red]"]]
    for written in ("[red]x[/red]", "[/nothing]", "[bold]", "[a]"):
        assert written in text


def test_it_has_colours_only_where_they_are_wanted() -> None:
    assert "\x1b" not in to_text(everything())
    written = io.StringIO()
    show(Console(file=written, force_terminal=True, width=100, color_system="standard"), everything())
    assert re.search("\x1b.*exactly-once", written.getvalue())
