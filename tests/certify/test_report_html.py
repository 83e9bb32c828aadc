"""The HTML page: well formed, escaped, complete, and dependent on nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from headrace.certify.report_html import to_html
from headrace.certify.report_style import STYLE
from headrace.certify.results import Cell, Evidence, Outcome, Report, Seeded
from headrace.pipeline.settings import Guarantee
from tests.certify.made_up import cell, everything, evidence, report

EVIL = "</td><script>alert('1')</script> & \"quoted\" <b"


class Page(HTMLParser):
    """Fails at a tag that is not closed where it must be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        """With the tag that each is in."""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.open[-1], data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return "".join(data for tag, data in self.texts if tag != "style")


def evil() -> Report:
    """Everything that is text is markup."""
    one = Evidence(EVIL, Outcome.BROKEN, EVIL, 1, (EVIL, EVIL), began=EVIL)
    cells = (
        Cell(EVIL, EVIL, EVIL, Guarantee.EXACTLY_ONCE, (one,)),
        Cell(EVIL, f"ingest: {EVIL}", "-", Guarantee.EXACTLY_ONCE, (one,)),
    )
    seeded = (Seeded(EVIL, EVIL, False, EVIL), Seeded(EVIL, EVIL, True, EVIL))
    return Report(1, EVIL, 1.0, EVIL, {EVIL: EVIL}, cells, seeded, (EVIL,))  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [everything(), evil(), report()], ids=["everything", "evil", "empty"])
def test_it_is_well_formed(one: Report) -> None:
    page = Page(to_html(one, {"killed": EVIL}))
    assert [tag for tag, _attributes in page.tags][:2] == ["html", "head"]
    ids = [attributes["id"] for _tag, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_every_text_is_escaped() -> None:
    told = to_html(evil(), {EVIL: EVIL})
    assert "<script" not in told
    page = Page(told)
    assert page.all("script") == []
    assert page.all("b") == []
    # Each of its texts is still there, as text.
    assert page.text.count(EVIL) >= 20


def test_every_cell_leads_to_its_evidence() -> None:
    whole = everything()
    page = Page(to_html(whole))
    links = [attributes["href"] for attributes in page.all("a")]
    targets = [f"#{attributes['id']}" for attributes in page.all("section") if "id" in attributes]
    assert len(links) == len(set(links)) == len(whole.cells)
    assert sorted(links) == sorted(targets)


def test_a_link_leads_to_the_cell_that_it_is_in() -> None:
    told = to_html(everything())
    (anchor,) = re.findall(r'href="#([^"]+)"[^>]*>failed: zombie', told)
    section = told[told.index(f'id="{anchor}"') :]
    assert section[: section.index("</section>")].count("3 documents lost") == 1


def test_every_scenario_is_in_the_evidence_with_all_its_figures() -> None:
    one = Evidence("split", Outcome.HELD, "as told", 90210, ("kill at x", "cut"), 12345, 67, 89, 10.26)
    rows = re.findall(r"<tr><th scope=\"row\">split</th>.*?</tr>", to_html(report(cell(one))), re.DOTALL)
    assert len(rows) == 1
    for figure in ("held", "as told", "kill at x<br>cut", "12,345", ">67<", ">89<", "10.3", "90210"):
        assert figure in rows[0]


def test_the_header_says_when_how_long_and_with_what() -> None:
    text = Page(to_html(everything())).text
    for fact in ("2026-03-04 05:06:07 UTC", "12 min 34 s", "42", "full", "headrace", "1.2.3"):
        assert fact in text


def test_it_needs_nothing_else() -> None:
    told = to_html(everything())
    page = Page(told)
    assert "http://" not in told
    assert "https://" not in told
    assert "url(" not in told
    assert "@import" not in told
    assert not {tag for tag, _attributes in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not [attributes for _tag, attributes in page.tags if "src" in attributes]


def test_colour_is_never_the_only_signal() -> None:
    """Every class that has a background of its own is on something that says it in words."""
    told = to_html(everything())
    words = {"held": "held", "void": "void", "failed": "failed|twice|broken|NOT", "not-run": "not run"}
    found = re.findall(r'<td class="([a-z-]+)">(.*?)</td>', told, re.DOTALL)
    coloured = [(kind, inside) for kind, inside in found if kind not in ("number", "told")]
    assert len(coloured) > 20
    for kind, inside in coloured:
        assert re.search(words.get(kind, kind), re.sub("<[^>]*>", "", inside), re.IGNORECASE)
        assert 'class="sign"' in inside


def test_every_class_has_a_style() -> None:
    used = {
        name
        for _tag, attributes in Page(to_html(everything())).tags
        for name in attributes.get("class", "").split()
    }
    assert not [name for name in used if not re.search(rf"\.{name}\b(?!-)", STYLE)]


@pytest.mark.parametrize("night", [False, True])
def test_text_can_be_read_on_every_background(night: bool) -> None:
    """By the ratio that WCAG asks for."""
    day, dark = (dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", part)) for part in STYLE.split("@media (", 1))
    colours = dark if night else day
    assert colours.keys() == day.keys()
    backgrounds = ("page", "panel", "exact", "effective", "least", "most", "bad", "off")
    assert all(_contrast(colours["text"], colours[name]) >= 4.5 for name in backgrounds)
    assert all(_contrast(colours[name], colours["page"]) >= 4.5 for name in ("soft", "link"))


def _contrast(one: str, other: str) -> float:
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_what_counts_twice_is_marked_as_a_failure_unless_it_is_allowed() -> None:
    twice = evidence("again", Outcome.TWICE)
    strict, excused = cell(twice), cell(twice, claimed=Guarantee.AT_LEAST_ONCE)
    assert re.search(r'class="failed">[^\n]*✗</span> twice<', to_html(report(strict)))
    assert re.search(r'class="twice">[^\n]*twice, as is allowed<', to_html(report(excused)))


def test_a_defect_that_was_not_caught_is_void() -> None:
    told = to_html(everything())
    assert re.search(r"<td>fence not checked</td><td class=\"void\">.*?VOID</td>", told)
    assert re.search(r"<td>commit not idempotent</td><td class=\"caught\">.*?caught</td>", told)
    assert re.search(r'class="void">[^\n]*\?</span> held, in a void scenario<', told)
    assert "Not tried with a defect in this run: zombie, latest, fsync fails." in told
    assert "None was tried in this run." in to_html(replace(everything(), seeded=()))
