"""Each of the twelve invariants on the page names tests, and those exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs/invariants.md").read_text().splitlines()
GUARDED = {int(line.split("|")[1]): line.split("|")[-2] for line in LINES if re.match(r"\| \d+ \|", line)}


def test_all_twelve_are_on_the_page() -> None:
    assert list(GUARDED) == list(range(1, 13))


@pytest.mark.parametrize("number", GUARDED)
def test_the_tests_that_guard_an_invariant_are_there(number: int) -> None:
    files = re.findall(r"`([\w/]+\.(?:py|rs))`", GUARDED[number])
    names = re.findall(r"`(\w+)`", GUARDED[number])
    assert files, "no test is named"
    defined = "\n".join((ROOT / file).read_text() for file in files)
    assert [name for name in names if not re.search(rf"(def|fn) {name}\(", defined)] == []
