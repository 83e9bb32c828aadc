"""The page of the documentation: its tables are tables, and no text becomes markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.certify.report_markdown import to_markdown
from headrace.certify.results import Evidence, Outcome, Report, Seeded
from tests.certify.made_up import AT_LEAST, BROKEN, NOT_RUN, TWICE, cell, everything, evidence, report

DOCS = Path(__file__).parents[2] / "docs"
EVIL = "a | b\n\n# c <script> `d` *e* [f](g.md) _h_ i_j \\"


def evil() -> Report:
    one = Evidence(EVIL, Outcome.BROKEN, EVIL, 1)
    cells = [cell(one, source=EVIL, sink=EVIL, profile=EVIL), cell(one, sink=f"ingest: {EVIL}", profile="-")]
    return report(*cells, seeded=(Seeded(EVIL, EVIL, False, EVIL),), notes=(EVIL,))


def tables(text: str) -> list[list[list[str]]]:
    """Rows of cells, of each run of lines that begin with a bar."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[re.split(r"(?<!\\)\|", row.strip())[1:-1] for row in block.splitlines()] for block in blocks]


def row(text: str, name: str) -> list[str]:
    """The first that begins with `name`."""
    cells = next(cells for table in tables(text) for cells in table if cells[0].strip() == name)
    return [one.strip() for one in cells]


@pytest.mark.parametrize("one", [everything(), evil(), report()], ids=["everything", "evil", "empty"])
def test_every_table_is_one(one: Report) -> None:
    text = to_markdown(one, {"killed": EVIL})
    found = tables(text)
    assert found
    for table in found:
        assert len({len(cells) for cells in table}) == 1
        assert set(table[1]) == {"---"}
        assert len(table) > 2
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert f"\n\n{block}" in text
        assert not text.partition(block)[2] or text.partition(block)[2].startswith("\n")


def test_no_text_becomes_markup() -> None:
    text = to_markdown(evil())
    assert not re.search(r"(?<!\\)<script", text)
    assert not re.search(r"(?<!\\)`d", text)
    assert not re.search(r"(?<!\\)\*e", text)
    assert "](g.md" not in text
    assert re.search(r"\\_h\\_ i_j", text)
    assert not re.search(r"^# c", text, re.MULTILINE)


def test_it_says_that_it_is_generated_and_by_what() -> None:
    intro = to_markdown(everything()).split("\n## ")[0]
    assert intro.startswith("# Certification\n")
    for fact in (
        "generated",
        "`headrace certify --markdown`",
        "seed 42",
        "2026-03-04 05:06:07 UTC",
        "12 min 34 s",
    ):
        assert fact in intro


def test_the_matrix_has_every_cell() -> None:
    text = to_markdown(everything())
    postgres = ["postgres", "**failed: zombie**", "`exactly-once`", "not run"]
    assert row(text, "postgres") == postgres
    assert row(text, "redis") == ["redis", "not run", "`effectively-once`", "`at-least-once`"]
    assert row(text, "hudi") == ["hudi", "not run", "void", "not run"]
    assert row(text, "LOCAL_DISK") == ["LOCAL_DISK", "`exactly-once`"]
    assert row(text, "headrace") == ["headrace", "1.2.3"]


def test_a_failure_is_told() -> None:
    text = to_markdown(everything())
    assert "- collection → postgres (dev-local): zombie is broken: 3 documents lost (seed 7)\n" in text
    assert "## What failed" not in to_markdown(report(cell(evidence())))


def test_each_scenario_says_where_it_held() -> None:
    cells = [cell(evidence("all"), evidence("some"), sink=sink) for sink in ("a", "b")]
    cells += [cell(evidence("all"), evidence("some", BROKEN), sink="c")]
    cells += [cell(evidence("all"), evidence("some", TWICE), sink="d", claimed=AT_LEAST)]
    cells += [cell(evidence("all"), evidence("some", NOT_RUN), sink="e")]
    text = to_markdown(report(*cells, seeded=(Seeded("all", "x", True), Seeded("some", "y", False))))
    assert row(text, "all") == ["all", "all 5", "", "6,000", "155"]
    assert row(text, "some (void)")[1:3] == [
        "2 of 4",
        "**broken** in collection → c (single-node-durable); counts twice, as is allowed, in "
        "collection → d (single-node-durable); not run in 1",
    ]


def test_many_cells_are_named_by_their_sinks() -> None:
    cells = [
        cell(evidence("z", BROKEN), sink=sink, profile=profile)
        for sink in "ab"
        for profile in ("p", "q", "r")
    ]
    assert row(to_markdown(report(*cells)), "z")[2] == "**broken** in 6 cells of a, b"


def test_scenarios_are_explained_if_somebody_can() -> None:
    text = to_markdown(everything(), {"killed": "a process dies"})
    assert row(text, "killed")[:3] == ["killed", "a process dies", "all 5"]
    assert row(text, "latest")[1] == ""


def test_defects() -> None:
    text = to_markdown(everything())
    assert "| blind | fence not checked | **VOID** | a refusal was expected |" in text
    assert "| killed | commit not idempotent | caught | twice: 4 documents |" in text
    assert "Not tried with a defect in this run: zombie, latest, fsync fails." in text


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"(?<!\\)\]\(([^)]+)\)", to_markdown(everything()))
    assert links
    for link in links:
        name, _, anchor = link.partition("#")
        headings = re.findall(r"^#+ (.*)$", (DOCS / name).read_text(), re.MULTILINE)
        assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings]
